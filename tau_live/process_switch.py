"""The switch as this process's environment has it; what is unclear about it is logged once."""

import os
import sys

from tau_live.errors import pass_on
from tau_live.switch import KILL, OLD_SWITCH, SWITCH, switched_on

START_FAILED = "start_failed"
"""What is logged where tau-live cannot be started."""

_CAUSES, _TEXT = 100, 500


class _State:
    """What was logged."""

    warned: str = ""
    held: tuple[object, ...] = ()
    on: bool = False
    logged: "set[tuple[str, str, str]]" = set()  # noqa: RUF012  # of the process


_READ = tuple(map(os.fsencode, (SWITCH, OLD_SWITCH, KILL)))


def is_on() -> bool:
    """Say whether the environment switches tau-live on now.

    Adapters ask at every callback of their hosts. So what the environment holds is only read anew
    where it has changed; looked at as it is kept, because asking for it encodes and decodes it.
    """
    raw = getattr(os.environ, "_data", None)
    held = tuple(map(raw.get, _READ)) if isinstance(raw, dict) else ()
    if held and held == _State.held:
        return _State.on
    _State.on = _is_on()
    _State.held = held
    return _State.on


def _is_on() -> bool:
    found = switched_on(os.environ)
    if found.warnings and _State.warned != found.warnings[-1]:
        _State.warned = found.warnings[-1]
        if not found.on:  # where it is on, the settings tell
            log_line(_State.warned)
    return found.on


def log_line(line: str, *, is_error: bool = False) -> None:
    """Log a line where nothing of ours may be imported yet.

    Nothing is raised but what interrupted us.
    """
    try:
        try:
            import logging

            logger = logging.getLogger("tau_live")
        except Exception as error:  # noqa: BLE001  # a file hides it, or what it needs
            pass_on(error)
            sys.stderr.write(f"{line}\n")  # as logging does where nobody has configured it
            return
        logger.error(line) if is_error else logger.warning(line)
    except Exception as error:  # noqa: BLE001  # a host's handlers
        pass_on(error)


def log_failure(event: str, error: Exception) -> None:
    """Log once, in one line, what failed at the door, where nothing of ours may be imported yet.

    The line says why, and which files hide modules that we need. Nothing is raised but what
    interrupted us.
    """
    pass_on(error)
    try:
        at = error.__traceback__
        while at is not None and at.tb_next is not None:
            at = at.tb_next
        place = f"{at.tb_frame.f_code.co_filename}:{at.tb_lineno}" if at is not None else "unknown"
        cause = (event, type(error).__name__, place)
        if cause in _State.logged or len(_State.logged) >= _CAUSES:
            return
        _State.logged.add(cause)
        log_line(_line(event, error, place), is_error=True)
    except Exception as second:  # noqa: BLE001  # a hostile exception
        pass_on(second)


def _line(event: str, error: Exception, place: str) -> str:
    text = " ".join(str(error).split())[:_TEXT]
    try:
        from tau_live.privacy.redaction import scrubbed

        text = scrubbed(text)
    except Exception as second:  # noqa: BLE001  # for the same reason, maybe
        pass_on(second)  # what an import says holds no secret
        text = text if isinstance(error, ImportError) else ""
    parts = [f"{event}: {type(error).__name__}: {text} ({place})"]
    try:
        from tau_live.machine.hidden_modules import hiding_files

        parts += hiding_files()
    except Exception as second:  # noqa: BLE001  # no file can be opened, maybe
        pass_on(second)
    if event == START_FAILED:
        parts.append("tau-live stays off in this process")
    return "; ".join(parts)
