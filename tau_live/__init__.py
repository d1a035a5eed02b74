"""tau-live: lets an LLM agent you already run learn from its own decisions.

Importing this costs nothing: the door behind it opens on first use.
"""

from posix import getpid as _getpid  # built in: it costs nothing

TYPE_CHECKING = False  # type checkers know the name; importing it would cost a host 5 ms

if TYPE_CHECKING:
    from os import PathLike

    from tau_live.cli.notebook import Opened
    from tau_live.core.choices import Choice
    from tau_live.runtime.api import (
        Run,
        attach,
        child_environ,
        current,
        decide,
        detach,
        flush,
        prompt,
        reward,
        run,
        snapshot,
    )

__version__ = "0.1.0"

_opening: list[int] = []
"""The id of its process, for each thread that imports the door."""

__all__ = [
    "Choice",
    "Run",
    "attach",
    "child_environ",
    "current",
    "decide",
    "detach",
    "flush",
    "prompt",
    "reward",
    "run",
    "snapshot",
]


def open(path: "str | PathLike[str] | None" = None) -> "Opened":  # noqa: A001  # as files are
    """Open a store to look at it in a notebook or a script; nothing is written.

    It works whether tau-live is on or off, and while agents write. Needs pyarrow.

    Args:
        path: The store's file; ``None`` is the one of the settings.

    Returns:
        Its tables as Arrow: ``rollouts()``, ``decisions()``, ``rewards()``, ``spans()``,
        ``attempts()``, ``updates()``; and ``evaluate(policy)``.

    Raises:
        TauLiveError: There is no such store, it cannot be read, or pyarrow is not installed.
    """
    from tau_live.cli.notebook import open_store

    return open_store(path)


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if any(process != _getpid() for process in _opening):
        globals().update(_left_alone())
        return globals()[name]
    try:
        _opening.append(_getpid())
        from tau_live.runtime import api

        names = {public: getattr(api, public) for public in __all__}
    except Exception as error:  # noqa: BLE001  # the border to the host
        if _report(error):
            globals().update(_WITHOUT_DOOR)
        return _WITHOUT_DOOR[name]
    finally:
        if _opening:
            _opening.pop()
    globals().update(names)  # for good: nothing can be imported as the interpreter ends
    return names[name]


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def _report(error: Exception) -> bool:
    """Log why the door cannot be opened, unless it is merely too early or too late for it."""
    try:
        import sys

        from tau_live.core.errors import pass_on
        from tau_live.core.switch import is_on, log_failure
    except (ImportError, OSError):  # the interpreter ends, or no file can be opened
        return False
    pass_on(error)
    # a signal's handler may call in the midst of the import
    is_early = "tau_live.runtime.api" in sys.modules
    if is_early or sys.is_finalizing() or not is_on():
        return False
    log_failure("start_failed", error)
    return True


def _left_alone() -> dict[str, object]:
    """Return the functions of a process that was forked while another thread imported the door."""
    from os import environ  # which every interpreter has imported

    if environ.get("TAU_LIVE_RL", "").strip().lower() not in {"1", "true", "yes", "on"}:
        return _WITHOUT_DOOR
    say_left_alone()
    return {**_WITHOUT_DOOR, "flush": lambda timeout_s=5.0: False}  # noqa: ARG005


def say_left_alone() -> None:
    """Log that tau-live stays off in a forked child, where nothing may be imported any more.

    A child waits forever for an import that another thread was doing when the process was forked.
    """
    import sys

    line = (
        "event='fork_left_alone' effect='tau-live stays off in this process' "
        "cause='its parent was starting tau-live, or its store was busy, when it was forked'"
    )
    logging = sys.modules.get("logging")
    try:
        if logging is None or getattr(logging.__spec__, "_initializing", False):
            sys.stderr.write(f"{line}\n")  # as logging does where nobody has configured it
        else:
            logging.getLogger("tau_live").warning(line)
    except Exception as error:  # noqa: BLE001  # a handler of the host's
        from tau_live.core.errors import pass_on

        pass_on(error)


class _Choice(tuple):  # type: ignore[type-arg]  # as choices.Choice, which needs imports
    option = property(lambda self: self[0])
    probability = property(lambda self: self[1])
    source = property(lambda self: self[2])
    id = property(lambda self: self[3])
    policy_version = property(lambda self: self[4])
    run = property(lambda self: self[5])


class _Run:
    """A run that is recorded nowhere; entered, it is itself."""

    id = ""
    handle = None

    def __init__(self, name: str, **_: object) -> None:
        self.name = self.run_id = name

    def decide(self, point: str, options: object, **more: object) -> _Choice:
        return _decide(point, options, **more)

    def prompt(self, own: str, **_: object) -> str:
        return own

    def reward(self, value: object, **_: object) -> bool:  # noqa: ARG002  # as the door's
        return False

    def __enter__(self) -> "_Run":
        return self

    def __exit__(self, *_: object) -> None:
        return None

    async def __aenter__(self) -> "_Run":
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    def __call__(self, function: object) -> object:
        return function


def _decide(
    point: str,  # noqa: ARG001  # as the door's
    options: object,
    *,
    default: object = None,
    allowed: object = None,
    **_: object,
) -> _Choice:
    """Return the host's own choice as far as it is allowed: the default, else the first option."""
    try:
        ranked = options if default is None else (default, *options)  # type: ignore[misc]
        may = ranked if allowed is None else [item for item in ranked if item in allowed]  # type: ignore[attr-defined,operator]
        option = next(iter(may), None)  # type: ignore[call-overload]
    except Exception:  # noqa: BLE001  # a host's object may raise anything when it is read
        option = default if allowed is None else None
    return _Choice((option, None, "default", "", 0, ""))


def _child_environ(environ: object = None) -> dict[str, str]:
    from os import environ as own

    return dict(environ if type(environ) is dict else own)


_WITHOUT_DOOR: dict[str, object] = {
    "Choice": _Choice,
    "Run": _Run,
    "attach": lambda target=None: None,  # noqa: ARG005
    "child_environ": _child_environ,
    "current": lambda: None,
    "decide": _decide,
    "detach": lambda timeout_s=5.0: None,  # noqa: ARG005
    "flush": lambda timeout_s=5.0: True,  # noqa: ARG005
    "prompt": lambda own, **_: own,
    "reward": lambda value, **_: False,  # noqa: ARG005
    "run": _Run,
    "snapshot": lambda: {"enabled": False},
}
"""The public names where the door cannot be imported; they act as while tau-live is off."""
