"""The switch in this process's environment; warnings about it are logged once."""

import os
import sys

from tau_live.core.errors import pass_on, place_of, suppress
from tau_live.core.switch import KILL, OLD_SWITCH, SWITCH, switched_on

START_FAILED = "start_failed"
"""The event of the log line of a process in which tau-live cannot be started."""

_CAUSES, _TEXT = 100, 500


class _State:
    """The switch as it was last read, and the failures that were logged."""

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
