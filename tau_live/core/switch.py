"""The switch in the environment, read before anything else of ours is imported (law 1)."""

TYPE_CHECKING = False  # this is imported where tau-live is off

if TYPE_CHECKING:
    from collections.abc import Mapping

SWITCH = "TAU_LIVE_RL"
OLD_SWITCH = "TAU_LIVE_RL_ENABLED"
KILL = "TAU_LIVE_RL_KILL"
PREFIX = "TAU_LIVE_RL_"

_ON = frozenset({"1", "true", "yes", "on"})
_OFF = frozenset({"", "0", "false", "no", "off"})


class Switch:
    """The switch in the environment; truthy when it is on.

    Attributes:
        on: Whether tau-live may do anything at all.
        warnings: Warnings about the variable, one line each.
    """

    __slots__ = ("on", "warnings")

    def __init__(self, *, on: bool, warnings: tuple[str, ...] = ()) -> None:
        self.on = on
        self.warnings = warnings

    def __bool__(self) -> bool:
        return self.on

    def __repr__(self) -> str:
        return f"Switch(on={self.on!r}, warnings={self.warnings!r})"


def switched_on(environ: "Mapping[str, str]") -> Switch:
    """Return the switch: on if the environment switches us on and the kill variable is not set."""
    switch = _read_switch(environ)
    why = killed_by(environ) if switch.on else None
    return switch if why is None else Switch(on=False, warnings=(*switch.warnings, why))


def killed_by(environ: "Mapping[str, str]") -> "str | None":
    """Return why ``TAU_LIVE_RL_KILL`` stops us; ``None`` where it is unset, blank or falsy.

    Any other value is meant to stop us.
    """
    value = environ.get(KILL, "").strip()
    if value.lower() in _OFF:
        return None
    return f"{KILL} is {value[:80]!r}: tau-live stays off until it is unset"


def _read_switch(environ: "Mapping[str, str]") -> Switch:
    """Return what ``TAU_LIVE_RL`` (or the reference's ``TAU_LIVE_RL_ENABLED``) is set to.

    ``1 true yes on`` is on, in any case; ``0 false no off``, unset and blank are off; anything
    else is off with a warning. The old name counts only where the new one is unset or blank.
    """
    variable = SWITCH
    warnings: tuple[str, ...] = ()
    value = environ.get(SWITCH, "").strip()
    if OLD_SWITCH in environ:
        warnings = (f"{OLD_SWITCH} is deprecated; set {SWITCH} instead",)
        if not value:
            variable, value = OLD_SWITCH, environ[OLD_SWITCH].strip()

    if value.lower() in _ON:
        return Switch(on=True, warnings=warnings)
    if value.lower() in _OFF:
        return Switch(on=False, warnings=warnings)
    unclear = f"{variable} must be one of 1, true, yes, on, 0, false, no, off, got {value[:80]!r}"
    return Switch(on=False, warnings=(*warnings, f"{unclear}; tau-live stays off"))
