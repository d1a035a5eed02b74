"""The result of a decision; light, because hosts get it even while tau-live is off."""

from typing import Any, NamedTuple

from tau_live.core.errors import pass_on


class Choice(NamedTuple):
    """The result of a decision.

    Attributes:
        option: One of the options offered; the host's own choice if anything fails.
        probability: The probability with which it was chosen; ``None`` if it was not sampled.
        source: ``policy`` or ``default``.
        id: The id of the decision, for rewards. Empty if nothing is recorded.
        policy_version: The version that decided; 0 is the untrained policy.
        run: The id of its rollout. Empty if nothing is recorded.
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
            is_text = issubclass(type(options), str)  # without its ``__class__``
            option = options if is_text else next(iter(options), None)  # type: ignore[call-overload]  # whatever the host handed over
        except Exception as error:  # noqa: BLE001  # a host's object may raise anything
            pass_on(error)
            option = None
    return Choice(option, None, "default", "", 0, "")
