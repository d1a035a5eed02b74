"""What a decision gives back to the host; light, because hosts see it even while we are off."""

from typing import Any, NamedTuple

from tau_live.errors import pass_on


class Choice(NamedTuple):
    """What was chosen, and how.

    Attributes:
        option: One of the options offered; the host's own choice whenever in doubt.
        probability: With which it had been chosen; ``None`` where nobody drew.
        source: ``policy`` or ``default``.
        id: Names the decision; a reward may be given for it. Empty where nothing is recorded.
        policy_version: The version that decided; 0 is the untrained policy.
        run: The id of the rollout it belongs to. Empty where nothing is recorded.
    """

    option: Any
    probability: float | None
    source: str
    id: str
    policy_version: int
    run: str


def fallback(options: object, default: object) -> Choice:
    """Return the host's own choice: the default, else the first option."""
    option = default
    if option is None:
        try:
            is_text = issubclass(type(options), str)  # its ``__class__`` is not asked
            option = options if is_text else next(iter(options), None)  # type: ignore[call-overload]  # whatever the host handed over
        except Exception as error:  # noqa: BLE001  # a host's object may raise anything when it is looked at
            pass_on(error)
            option = None
    return Choice(option, None, "default", "", 0, "")
