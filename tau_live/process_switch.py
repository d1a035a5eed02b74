"""The switch as this process's environment has it; what is unclear about it is told once."""

import os

from tau_live.switch import KILL, OLD_SWITCH, SWITCH, switched_on


class _State:
    """What was told last."""

    warned: str = ""
    held: tuple[object, ...] = ()
    on: bool = False


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
            import logging

            logging.getLogger("tau_live").warning(_State.warned)
    return found.on


def log_failure(event: str, error: Exception) -> None:
    """Log what failed at the door, where nothing of ours was imported yet; without secrets."""
    try:
        import logging
        from traceback import format_exception

        from tau_live.privacy.redaction import scrubbed

        text = scrubbed("".join(format_exception(error)).rstrip())
        logging.getLogger("tau_live").error("%s: %s\n%s", event, type(error).__name__, text)
    except Exception:  # noqa: BLE001, S110  # a host's logging may be broken
        pass
