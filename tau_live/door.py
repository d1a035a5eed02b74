"""The public door: attach, run, decide, reward, flush, snapshot.

With ``TAU_LIVE_RL`` unset, empty or falsy every function here works, returns the host's own
choice, and imports, starts and writes nothing. With it on, nothing here raises into the host.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar, Token
from types import TracebackType
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from tau_live.choices import Choice, fallback
from tau_live.machine.context_variables import put, put_back
from tau_live.process_runtime import State, started, taken
from tau_live.process_switch import is_on, log_failure

if TYPE_CHECKING:
    from tau_live.runs.handles import RunHandle
    from tau_live.runtime import Runtime
    from tau_live.settings import Settings

P = ParamSpec("P")
R = TypeVar("R")
Options = Mapping[str, Mapping[str, object] | None] | Sequence[object]

_current: ContextVar["Run | None"] = ContextVar("tau_live_run", default=None)


def attach(target: "object | Settings | None" = None) -> "Runtime | None":
    """Start tau-live in this process; the same again returns what runs already.

    Args:
        target: A host's pluggy manager whose plugins may implement our hooks too, or
            ``Settings`` that replace those of the environment. ``None`` reads the environment.

    Returns:
        The running system, or ``None`` while ``TAU_LIVE_RL`` is not truthy.
    """
    try:
        if not is_on():
            return None
        if State.runtime is not None and target is None:
            return State.runtime
        return started(target, os.environ, _inside)
    except Exception as error:  # noqa: BLE001  # the border to the host
        log_failure("start_failed", error)
        return None


def detach(timeout_s: float = 5.0) -> None:
    """Store what waits and stop; a later ``attach`` starts anew."""
    runtime = taken()
    if runtime is not None:
        runtime.close(timeout_s)


def running() -> "Runtime | None":
    """Return what runs in this process; starts nothing."""
    return State.runtime


def in_force() -> "Runtime | None":
    """Return what adapters work with, started where it has to be; ``None`` after ``detach``."""
    return None if State.detached else attach()


def is_detached() -> bool:
    """Say whether ``detach`` was called last, so that nothing is started by itself."""
    return State.detached


def current() -> "Run | None":
    """Return the innermost run of this thread or task."""
    return _current.get()


def enter(handle: "RunHandle | None") -> "Token[Run | None]":
    """Make an adapter's run the innermost one here, or none."""
    return put(_current, Run(handle.name, handle.run_id, handle) if handle else None)


def run(
    name: str,
    *,
    key: object = None,
    session: object = None,
    metadata: Mapping[str, object] | None = None,
) -> "RunContext":
    """Record one execution of an agent: ``with``, ``async with``, or a decorator.

    Args:
        name: What kind of run it is.
        key: Names this run among all of its name, so that its id is known before and after; the
            same key again is another attempt at it. As a decorator: may be a function of the
            call's arguments. ``None`` gives every run an id of its own.
        session: What runs of one conversation share.
        metadata: Plain data to be kept with it.
    """
    return RunContext(name, key=key, session=session, metadata=metadata)


def decide(
    point: str,
    options: Options,
    *,
    context: Mapping[str, object] | None = None,
    default: object = None,
    allowed: Iterable[object] | None = None,
    exploit_only: Iterable[object] | None = None,
) -> Choice:
    """Choose within the current run; without one, in a run of its own that ends at once."""
    inside = _current.get()
    with run(point) if inside is None else nullcontext(inside) as own:
        return own.decide(point, options, context=context, default=default, allowed=allowed,
                          exploit_only=exploit_only)  # fmt: skip


def reward(
    value: object,
    *,
    run: "Run | str | None" = None,
    host: str | None = None,
    session: object = None,
    decision: "Choice | str | None" = None,
    name: str = "reward",
    source: str = "api",
    key: str = "",
    comment: str | None = None,
) -> bool:
    """Value a run or one of its decisions: before, during or long after it, from anywhere.

    Args:
        value: A finite number, a boolean, or a text as a mere comment.
        run: The run or its rollout's id, or with ``host`` that host's own; ``None``: the current.
        host: Whose id ``run`` is, or whose session: ``pydantic-ai``.
        session: The conversation whose last run is meant, instead of ``run``.
        decision: The decision (or its id) that is meant, if it is not the whole run.
        name: What was measured.
        source: Who says so.
        key: Tells rewards of one name and source apart; the same again is nothing new, a
            different value replaces an earlier one.
        comment: What was said besides.

    Returns:
        Whether it was taken; ``False`` while tau-live is off or holds, or if it makes no sense.
    """
    runtime, inside = attach(), _current.get()
    if runtime is None:
        return False
    around = None if inside is None else inside.handle
    own = run if type(run) is Run else None
    return runtime.reward(
        value, run=run if own is None else own.id, host=host if own is None else None,
        session=session, inside=own.handle if own else around, around=around, key=key, name=name,
        decision=decision.id if type(decision) is Choice else decision, source=source,
        comment=comment,
    )  # fmt: skip


def flush(timeout_s: float = 5.0) -> bool:
    """Wait until all that was queued is stored and every due update is done and in service.

    Returns whether that was so within ``timeout_s``; ``True`` while tau-live is off, but for a
    child that it stays off in because of how that was forked.
    """
    runtime = attach()
    return not State.unfit if runtime is None else runtime.flush(timeout_s)


def snapshot() -> dict[str, object]:
    """Return the gate and everything an operator asks first, as plain data, from memory."""
    runtime = attach()
    return {"enabled": False} if runtime is None else runtime.snapshot()


class Run:
    """One execution of an agent, as the code inside it sees it.

    Attributes:
        name: What kind of run it is.
        run_id: The host's key of it, from which the rollout's id is made; while nothing is
            recorded just its name.
    """

    __slots__ = ("_handle", "name", "run_id")

    def __init__(self, name: str, run_id: str, handle: "RunHandle | None") -> None:
        self.name = name
        self.run_id = run_id
        self._handle = handle

    @property
    def id(self) -> str:
        """The id of the rollout; empty where nothing is recorded."""
        return self._handle.rollout_id if self._handle is not None else ""

    @property
    def handle(self) -> "RunHandle | None":
        """What the runtime knows of it; ``None`` where nothing is recorded."""
        return self._handle

    def decide(
        self,
        point: str,
        options: Options,
        *,
        context: Mapping[str, object] | None = None,
        default: object = None,
        allowed: Iterable[object] | None = None,
        exploit_only: Iterable[object] | None = None,
    ) -> Choice:
        """Choose one of ``options``.

        Args:
            point: Names the place where the agent chooses.
            options: Names, or names with features; they may differ at every decision.
            context: What is known about the situation: numbers, categories, texts.
            default: The host's own choice: the prior, and what is returned whenever in doubt.
            allowed: Those that may be chosen this time; no other is returned, not even as the
                default (then the first allowed is, or ``None``). ``None`` allows all.
            exploit_only: Those that are unsafe to explore: chosen on their estimate alone, without
                a share of uniform exploration or a bonus for being unknown.
        """
        if self._handle is None or (runtime := attach()) is None:
            if allowed is None:
                return fallback(options, default)
            from tau_live.handed.masks import mask_of, own_choice

            return own_choice(options, default, mask_of(allowed))
        return runtime.decide(self._handle, point, options=options, context=context,
                              default=default, allowed=allowed,
                              exploit_only=exploit_only)  # fmt: skip

    def reward(
        self,
        value: object,
        *,
        name: str = "reward",
        decision: "Choice | str | None" = None,
        source: str = "api",
        key: str = "",
        comment: str | None = None,
    ) -> bool:
        """Value this run, or one of its decisions; see ``tau_live.reward``."""
        return reward(value, run=self, decision=decision, name=name, source=source, key=key,
                      comment=comment)  # fmt: skip


class RunContext:
    """What ``tau_live.run`` returns: enters a run, or wraps a function so that each call is one."""

    def __init__(
        self,
        name: str,
        *,
        key: object,
        session: object,
        metadata: Mapping[str, object] | None,
    ) -> None:
        self._name = name
        self._key = key
        self._session = session
        self._metadata = metadata
        self._entered: list[tuple[Run, Token[Run | None]]] = []
        self._stepped: Run | None = None

    def __enter__(self) -> Run:
        self._entered.append((entered := self._begun(), put(_current, entered)))
        return entered

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._entered:
            return  # it was left already
        places = [n for n, (run_, _) in enumerate(self._entered) if run_ is current()] or [-1]
        entered, token = self._entered.pop(places[-1])  # threads may share it
        _reset(token)
        _end(entered, error)

    async def __aenter__(self) -> Run:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.__exit__(kind, error, traceback)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Wrap a function, coroutine function or (async) generator: each call is a run."""
        from tau_live.wrapping import each_call_in

        return each_call_in(function, self._for_call)

    def begin(self) -> None:
        """Begin the run without making it the current one; for generators."""
        self._stepped = self._begun()

    @contextmanager
    def step(self) -> Iterator[None]:
        """Make the begun run the current one for a while."""
        token = put(_current, self._stepped)
        try:
            yield
        finally:
            _reset(token)

    def finish(self, error: BaseException | None) -> None:
        """End the begun run."""
        if self._stepped is not None:
            _end(self._stepped, error)

    def _begun(self) -> Run:
        runtime = attach()
        if runtime is None:
            return Run(self._name, self._name, None)
        parent = _current.get()
        handle = runtime.begin_run(
            self._name,
            key=self._key,
            session=self._session,
            metadata=self._metadata,
            parent=parent.handle if parent else None,
        )
        return Run(handle.name, handle.run_id, handle)

    def _for_call(self, *args: object, **kwargs: object) -> "RunContext":
        key = self._key
        if callable(key) and is_on():
            try:
                key = key(*args, **kwargs)
            except Exception as error:  # noqa: BLE001  # the call itself must not suffer
                log_failure("key_failed", error)
                key = None
        return RunContext(self._name, key=key, session=self._session, metadata=self._metadata)


def _end(entered: Run, error: BaseException | None) -> None:
    if entered.handle is not None and (runtime := attach()) is not None:
        runtime.end_run(entered.handle, error)


def _reset(token: "Token[Run | None]") -> None:
    with suppress(ValueError):  # left in another context than it was entered in
        put_back(_current, token)


def _inside() -> "RunHandle | None":
    return entered.handle if (entered := _current.get()) is not None else None
