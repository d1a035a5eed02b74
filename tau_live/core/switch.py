"""The switch in the environment, read before anything else of ours is imported (law 1).

Until then, warnings and failures are logged from here, each once.
"""

import os
import sys

from tau_live.core.errors import pass_on, place_of, suppress

TYPE_CHECKING = False  # this is imported where tau-live is off

if TYPE_CHECKING:
    from collections.abc import Mapping

SWITCH = "TAU_LIVE_RL"
OLD_SWITCH = "TAU_LIVE_RL_ENABLED"
KILL = "TAU_LIVE_RL_KILL"
PREFIX = "TAU_LIVE_RL_"

START_FAILED = "start_failed"
"""The event of the log line of a process in which tau-live cannot be started."""

_CAUSES, _TEXT = 100, 500
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


class _State:
    """The switch of this process as it was last read, and the failures that were logged."""

    warned: str = ""
    raw: tuple[object, ...] = ()
    on: bool = False
    logged: "set[tuple[str, str, str]]" = set()  # noqa: RUF012  # of the process


_VARIABLES = tuple(map(os.fsencode, (SWITCH, OLD_SWITCH, KILL)))


def is_on() -> bool:
    """Return whether the environment switches tau-live on now.

    Adapters call this at every callback of their hosts. So the environment is parsed again only if
    it has changed, compared in its raw form, because ``os.environ`` encodes and decodes.
    """
    data = getattr(os.environ, "_data", None)
    raw = tuple(map(data.get, _VARIABLES)) if isinstance(data, dict) else ()
    if raw and raw == _State.raw:
        return _State.on
    switch = switched_on(os.environ)
    if switch.warnings and _State.warned != switch.warnings[-1]:
        _State.warned = switch.warnings[-1]
        if not switch.on:  # if it is on, loading the settings logs them
            log_line(_State.warned)
    _State.on, _State.raw = switch.on, raw
    return _State.on


def log_line(line: str, *, is_error: bool = False) -> None:
    """Log a line before other modules of ours may be imported.

    Raises nothing but an interruption.
    """
    with suppress(Exception):  # a host's handlers may raise
        try:
            import logging

            logger = logging.getLogger("tau_live")
        except Exception as error:  # noqa: BLE001  # a file hides it, or a module it needs
            pass_on(error)
            sys.stderr.write(f"{line}\n")  # as unconfigured logging does
            return
        logger.error(line) if is_error else logger.warning(line)


def log_failure(event: str, error: Exception) -> None:
    """Log a failure of the public API once per cause, before other modules may be imported.

    The line holds the error, and the files that hide modules we need. Raises nothing but an
    interruption.
    """
    pass_on(error)
    with suppress(Exception):  # a hostile exception
        place = place_of(error)
        cause = (event, type(error).__name__, place)
        if cause in _State.logged or len(_State.logged) >= _CAUSES:
            return
        _State.logged.add(cause)
        log_line(_line(event, error, place), is_error=True)


def _line(event: str, error: Exception, place: str) -> str:
    text = " ".join(str(error).split())[:_TEXT]
    try:
        from tau_live.core.redaction import scrub_text

        text = scrub_text(text)
    except Exception as second:  # noqa: BLE001  # maybe for the same reason
        pass_on(second)  # the text of an import error holds no secret
        text = text if isinstance(error, ImportError) else ""
    parts = [f"{event}: {type(error).__name__}: {text} ({place})"]
    with suppress(Exception):  # maybe no file can be opened
        from tau_live.core.files import hiding_files

        parts += hiding_files()
    if event == START_FAILED:
        parts.append("tau-live stays off in this process")
    return "; ".join(parts)
