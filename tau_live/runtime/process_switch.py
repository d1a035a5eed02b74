"""The switch as this process's environment has it; what is unclear about it is logged once."""

import os
import sys

from tau_live.core.errors import pass_on, place_of, suppress
from tau_live.core.switch import KILL, OLD_SWITCH, SWITCH, switched_on

START_FAILED = "start_failed"
"""The log lines of a process in which tau-live cannot be started."""

_CAUSES, _TEXT = 100, 500


class _State:
    """The switch as it was last read, and the lines that were logged."""

    warned: str = ""
    held: tuple[object, ...] = ()
    on: bool = False
    logged: "set[tuple[str, str, str]]" = set()  # noqa: RUF012  # of the process


_READ = tuple(map(os.fsencode, (SWITCH, OLD_SWITCH, KILL)))


def is_on() -> bool:
    """Return whether the environment switches tau-live on now.

    Adapters ask at every callback of their hosts. So what the environment holds is only read anew
    where it has changed; looked at as it is kept, because asking for it encodes and decodes it.
    """
    raw = getattr(os.environ, "_data", None)
    held = tuple(map(raw.get, _READ)) if isinstance(raw, dict) else ()
    if held and held == _State.held:
        return _State.on
    switch = switched_on(os.environ)
    if switch.warnings and _State.warned != switch.warnings[-1]:
        _State.warned = switch.warnings[-1]
        if not switch.on:  # where it is on, the settings tell
            log_line(_State.warned)
    _State.on, _State.held = switch.on, held
    return _State.on


def log_line(line: str, *, is_error: bool = False) -> None:
    """Log a line where nothing of ours may be imported yet.

    Nothing is raised but what interrupted us.
    """
    with suppress(Exception):  # a host's handlers
        try:
            import logging

            logger = logging.getLogger("tau_live")
        except Exception as error:  # noqa: BLE001  # a file hides it, or what it needs
            pass_on(error)
            sys.stderr.write(f"{line}\n")  # as logging does where nobody has configured it
            return
        logger.error(line) if is_error else logger.warning(line)


def log_failure(event: str, error: Exception) -> None:
    """Log once, in one line, what failed at the door, where nothing of ours may be imported yet.

    The line says why, and which files hide modules that we need. Nothing is raised but what
    interrupted us.
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
    except Exception as second:  # noqa: BLE001  # for the same reason, maybe
        pass_on(second)  # what an import says holds no secret
        text = text if isinstance(error, ImportError) else ""
    parts = [f"{event}: {type(error).__name__}: {text} ({place})"]
    with suppress(Exception):  # no file can be opened, maybe
        from tau_live.core.files import hiding_files

        parts += hiding_files()
    if event == START_FAILED:
        parts.append("tau-live stays off in this process")
    return "; ".join(parts)
