"""The public API: attach, run, decide, reward, flush, snapshot, child_environ.

With ``TAU_LIVE_RL`` unset, empty or falsy, every function works, returns the host's own
choice, and imports, starts and writes nothing. With it on, nothing here raises into the host.
Interruptions by the host itself, such as an exception from a signal handler, pass through and leave
nothing half done.

A generator shares its caller's context variables, so its run is the current one only while it is
being stepped, never while its caller holds a yielded value.
"""

import functools
import inspect
import os
from collections.abc import (
    AsyncGenerator,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from contextvars import ContextVar, Token
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar
from weakref import ReferenceType, ref

from tau_live.core.choices import Choice, fallback
from tau_live.core.errors import pass_on, suppress
from tau_live.core.switch import START_FAILED, is_on, log_failure
from tau_live.core.sync import put_back, set_variable
from tau_live.runtime.process import State, start_runtime, stop

if TYPE_CHECKING:
    from tau_live.core.records import Claim
    from tau_live.core.settings import Settings
    from tau_live.decisions.runs import RunHandle
    from tau_live.runtime.runtime import Runtime

P = ParamSpec("P")
R = TypeVar("R")
Options = Mapping[str, Mapping[str, object] | None] | Sequence[object]

_current: ContextVar["Run | None"] = ContextVar("tau_live_run", default=None)


def attach(target: "object | Settings | None" = None) -> "Runtime | None":
    """Start tau-live in this process; a second call returns the running system.

    Args:
        target: A host's pluggy manager, whose plugins may implement tau-live's hooks too, or
            ``Settings`` that replace those of the environment. ``None`` reads the environment.

    Returns:
        The running system, or ``None`` while ``TAU_LIVE_RL`` is not truthy.
    """
    try:
        if not is_on():
            return None
        if target is None and (State.runtime is not None or State.failed):
            return State.runtime
        return start_runtime(target, os.environ, _inside)
    except RecursionError:  # the host's stack has no room: a later call may succeed
        return None
    except Exception as error:  # noqa: BLE001  # the border to the host
        log_failure(START_FAILED, error)
        return None


def detach(timeout_s: float = 5.0) -> None:
    """Store what is pending and stop; a later ``attach`` starts again."""
    try:
        stop(timeout_s)
        from tau_live.core.processes import FOLDER

        os.environ.pop(FOLDER, None)
    except Exception as error:  # noqa: BLE001  # the border to the host
        log_failure("detach_failed", error)


def running() -> "Runtime | None":
    """Return the runtime of this process, without starting it."""
    return State.runtime


def in_force() -> "Runtime | None":
    """Return the runtime for adapters, started if needed; ``None`` after ``detach``."""
    return None if State.detached else attach()


def is_detached() -> bool:
    """Return whether ``detach`` was called last, so that nothing starts by itself."""
    return State.detached


def current() -> "Run | None":
    """Return the innermost run of this thread or task."""
    return _current.get()


def enter(handle: "RunHandle | None") -> "Token[Run | None]":
    """Make an adapter's run the innermost one here, or none."""
    return set_variable(_current, Run(handle.name, handle.run_id, handle) if handle else None)


def run(
    name: str = "",
    *,
    key: object = None,
    session: object = None,
    metadata: Mapping[str, object] | None = None,
    claim: "Claim | None" = None,
) -> "RunContext":
    """Record one execution of an agent: ``with``, ``async with``, or a decorator.

    Args:
        name: The kind of run; that of the claimed rollout if it is left out.
        key: Identifies this run among all of its name, so that its id is known in advance; the
            same key again is another attempt at it. In a decorator it may be a function of the
            call's arguments. ``None`` gives every run its own id.
        session: The id that the runs of one conversation share.
        metadata: Plain data to store with it.
        claim: The claim of a queued rollout: the run is that rollout's claimed attempt, whatever
            ``key`` says, recorded if it is of the store in use here. Its end is the attempt's, as
            ``claim.finish`` would end it, also while nothing is recorded.
    """
    return RunContext(name, key=key, session=session, metadata=metadata, claim=claim)


def decide(
    point: str,
    options: Options,
    *,
    context: Mapping[str, object] | None = None,
    default: object = None,
    allowed: Iterable[object] | None = None,
    exploit_only: Iterable[object] | None = None,
) -> Choice:
    """Choose in the current run; without one, in its own run that ends at once."""
    try:
        inside = _current.get()
        if inside is not None:
            return inside.decide(point, options, context=context, default=default, allowed=allowed,
                                 exploit_only=exploit_only)  # fmt: skip
        with run(point) as own:
            return own.decide(point, options, context=context, default=default, allowed=allowed,
                              exploit_only=exploit_only)  # fmt: skip
    except RecursionError:
        return _without_room(options, default, allowed)


def prompt(own: str, *, context: Mapping[str, object] | None = None) -> str:
    """Return the prompt to use in the current run; without one, in its own run that ends at once.

    Args:
        own: Your own prompt, which is used while nothing else was proven or is on trial.
        context: Facts about the situation: numbers, categories, texts.

    Returns:
        ``own``, or an option of ``[tool.tau-live.decisions.prompt]``: one that is declared there,
        or with ``options-from = "resources"`` a prompt that ``tau-live optimize`` adopted. In its
        text ``own`` stands where it has ``{instructions}``.
    """
    try:
        inside = _current.get()
        if inside is not None:
            return inside.prompt(own, context=context)
        with run("prompt") as around:
            return around.prompt(own, context=context)
    except RecursionError:
        return own


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
    """Record a reward for a run or one of its decisions: before, during or long after it.

    Args:
        value: A finite number, a boolean, or a text, which is only a comment.
        run: The run or its rollout's id, or with ``host`` the host's id; default: the current run.
        host: The host that ``run`` or ``session`` belongs to, such as ``pydantic-ai``.
        session: Instead of ``run``, the conversation whose last run gets the reward.
        decision: The decision or its id, if the reward is not for the whole run.
        name: The name of the reward.
        source: Who gives it.
        key: Distinguishes rewards with the same name and source. Repeating one changes nothing; a
            different value replaces it.
        comment: A comment.

    Returns:
        Whether it was accepted; ``False`` if tau-live is off or holds, or if it is invalid. What
        was not accepted while it held is lost, unless you keep it and send it again.
    """
    try:
        runtime, inside = attach(), _current.get()
        if runtime is None:
            return False
        around = None if inside is None else inside.handle
        own = run if type(run) is Run else None
        return runtime.reward(
            value, run=run if own is None else own.id, host=host if own is None else None,
            session=session, inside=own.handle if own else around, around=around, key=key,
            name=name, decision=decision.id if type(decision) is Choice else decision,
            source=source, comment=comment,
        )  # fmt: skip
    except RecursionError:
        return False


def flush(timeout_s: float = 5.0) -> bool:
    """Wait until everything queued is stored and every due update is done and in service.

    Returns:
        Whether that happened within ``timeout_s``. ``False`` while the gate holds, as nothing is
        recorded then, and in a child process that tau-live stays off in because its parent was
        starting tau-live, or its store was busy, when it was forked; ``True`` while tau-live is
        off.
    """
    try:
        runtime = attach()
        return not State.unfit if runtime is None else runtime.flush(timeout_s)
    except RecursionError:
        return False
    except Exception as error:  # noqa: BLE001  # the border to the host
        log_failure("flush_failed", error)
        return False


def child_environ(environ: dict[str, str] | None = None) -> dict[str, str]:
    """Return the environment for a child process that is started inside the current run.

    Children of ``subprocess`` need it only where ``TAU_LIVE_RL_CHILDREN`` is off. A worker of a
    pool puts it into its ``os.environ`` before it does a task.

    Args:
        environ: The environment to extend; ``None``, or anything but a dict, for this process's.
    """
    own = environ if type(environ) is dict else dict(os.environ)
    try:
        handle = _inside()
        link = None if handle is None else handle.link
        if link is not None:
            from tau_live.core.processes import linked_environ

            return linked_environ(own, link, own=os.environ)
    except Exception as error:  # noqa: BLE001  # the border to the host
        log_failure("run_not_passed_on", error)
    return dict(own)


def snapshot() -> dict[str, object]:
    """Return the gate and the status of the store for operators, as plain data.

    The status is at most a second old, and includes everything flushed; if reading the store takes
    more than half a second, the last status is returned.
    """
    try:
        runtime = attach()
        return {"enabled": False} if runtime is None else runtime.snapshot()
    except RecursionError:
        return {"enabled": False}
    except Exception as error:  # noqa: BLE001  # the border to the host
        log_failure("snapshot_failed", error)
        return {"enabled": False}


class Run:
    """One execution of an agent, as the code inside it sees it.

    Attributes:
        name: The kind of run.
        run_id: The host's run id, from which the rollout's id is derived; if nothing is
            recorded, its name.
    """

    __slots__ = ("handle", "name", "run_id")

    def __init__(self, name: str, run_id: str, handle: "RunHandle | None") -> None:
        self.name = name
        self.run_id = run_id
        self.handle = handle  # the runtime's; ``None`` if nothing is recorded

    def __copy__(self) -> "Run":
        """Return the same object: copies made by the host are the same run."""
        return self

    def __deepcopy__(self, _memo: object) -> "Run":
        """Return the same object."""
        return self

    def __reduce__(self) -> tuple[Callable[..., "Run"], tuple[object, ...]]:
        """Pickle the ids of the run; an unpickled run can be rewarded and decided in."""
        own = self.handle
        ids = own and (own.session_id, own.recorded, own.host, own.execution)
        return _unpickle_run, (self.name, self.run_id, ids)

    @property
    def id(self) -> str:
        """The id of the rollout; empty if nothing is recorded."""
        handle = self.handle
        return handle.rollout_id if handle is not None and handle.recorded else ""

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
            point: The name of the decision point.
            options: Names, or names with features; they may differ from decision to decision.
            context: Facts about the situation: numbers, categories, texts.
            default: The host's own choice: the prior, and the result if anything fails.
            allowed: The options allowed this time; no other is returned, not even as the
                default (then it is the first allowed one, or ``None``). ``None`` allows all.
            exploit_only: Options that are unsafe to explore: chosen on their estimate, without
                uniform exploration or an uncertainty bonus.
        """
        try:
            handle = self.handle
            runtime = (State.runtime or attach()) if handle is not None and is_on() else None
            if handle is None or runtime is None:
                return _own_choice(options, default, allowed)
            return runtime.decide(handle, point, options=options, context=context,
                                  default=default, allowed=allowed,
                                  exploit_only=exploit_only)  # fmt: skip
        except RecursionError:
            return _without_room(options, default, allowed)

    def prompt(self, own: str, *, context: Mapping[str, object] | None = None) -> str:
        """Return the prompt to use in this run; see ``tau_live.prompt``."""
        try:
            handle = self.handle
            runtime = (State.runtime or attach()) if handle is not None and is_on() else None
            if handle is None or runtime is None:
                return own
            from tau_live.runtime.adapters import choose_prompt

            return choose_prompt(runtime, handle, own, context)
        except RecursionError:
            return own

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
        """Record a reward for this run or one of its decisions; see ``tau_live.reward``."""
        return reward(value, run=self, decision=decision, name=name, source=source, key=key,
                      comment=comment)  # fmt: skip


def _unpickle_run(name: str, run_id: str, ids: "tuple[str | None, bool, str, str] | None") -> Run:
    """Return the run of a pickle, which only the process that began it can end."""
    try:
        if ids is None or State.unfit or not is_on():
            return Run(name, run_id, None)
        from tau_live.decisions.runs import RunHandle

        session_id, recorded, host, execution = ids
        handle = RunHandle(
            name, run_id, session_id=session_id, parent=None, epoch=0, recorded=recorded,
            home=None, host=host, execution=execution,
        )  # fmt: skip
        return Run(name, run_id, handle)
    except Exception as error:  # noqa: BLE001  # the border to the host
        log_failure("run_not_read", error)
        return Run(name, run_id, None)


_watched: "dict[Run, ReferenceType[RunContext]]" = {}


class _Exit:
    """The ``__exit__`` of a run: ``with`` looks it up before entering, a call of ``__enter__`` not.

    A direct caller of ``__enter__`` may keep only the run, and leave it at any time, or never.
    """

    def __init__(self, function: Callable[..., None]) -> None:
        self._function = function

    def __get__(self, context: "RunContext | None", owner: object) -> Callable[..., None]:
        if context is None:
            return self._function
        context._in_with = True  # noqa: SLF001  # it is a part of that
        return partial(self._function, context)


class RunContext:
    """The result of ``tau_live.run``: enters a run, or wraps a function so each call is one."""

    def __init__(
        self,
        name: str,
        *,
        key: object,
        session: object,
        metadata: Mapping[str, object] | None,
        claim: "Claim | None" = None,
    ) -> None:
        self._name = name
        self._claim = claim
        self._key = key
        self._session = session
        self._metadata = metadata
        self._entered: dict[Run, Token[Run | None]] = {}  # with the token to leave each
        self._stepped: Run | None = None
        self._in_with = False

    def __enter__(self) -> Run:
        before, entered = _current.get(), None
        try:
            entered = self._begin_run()
            if self._in_with:
                self._watch(entered)
            self._entered[entered] = set_variable(_current, entered)
            return entered
        except BaseException as error:  # an interruption: a run not entered is never left
            if _current.get() is not before:
                set_variable(_current, before)
            if entered is not None:
                self._entered.pop(entered, None)
                _end(entered, error)
                _watched.pop(entered, None)
            if issubclass(type(error), RecursionError):
                return Run(self._name, self._name, None)
            raise

    def _exit(
        self,
        kind: type[BaseException] | None,  # noqa: ARG002  # as Python calls it
        error: BaseException | None,
        traceback: TracebackType | None,  # noqa: ARG002  # likewise
    ) -> None:
        inner = None
        try:
            if (inner := self._innermost()) is not None:
                self._leave(inner, error)
        except RecursionError:
            pass
        except BaseException:  # an interruption: do the rest, and nothing twice
            if (inner := inner or self._innermost()) is not None:
                self._leave(inner, error)
            raise

    if TYPE_CHECKING:
        __exit__ = _exit
    else:
        __exit__ = _Exit(_exit)

    def _innermost(self) -> Run | None:
        """Return the run to leave now; threads may share this object."""
        inside = _current.get()
        if inside in self._entered:
            return inside
        return next(reversed(self._entered.copy()), None)  # or it was left already

    def _leave(self, entered: Run, error: BaseException | None) -> None:
        with suppress(LookupError, ValueError, RuntimeError):  # another context, or interrupted
            put_back(_current, self._entered[entered])
        _end(entered, error)
        if self._claim is not None:
            _end_claim(self._claim, error)
        _watched.pop(entered, None)
        self._entered.pop(entered, None)

    def _watch(self, entered: Run) -> None:
        """End a run that is never left, as an interruption may prevent the call of ``__exit__``.

        A finaliser would swallow an interruption inside it, so this callback runs only in that
        case.
        """
        _watched[entered] = ref(self, lambda _: _abandon(entered))

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
        if State.unfit:  # an import may wait for ever
            return function
        return each_call_in(function, self._for_call)

    def begin(self) -> None:
        """Begin the run without making it the current one; for generators."""
        self._stepped = self._begin_run()
        self._watch(self._stepped)

    @contextmanager
    def step(self) -> Iterator[None]:
        """Make the run the current one for a while."""
        before = _current.get()
        try:
            set_variable(_current, self._stepped)
            yield
        finally:
            try:
                _step_back(self._stepped, before)
            except BaseException:  # an interruption
                _step_back(self._stepped, before)
                raise

    def finish(self, error: BaseException | None) -> None:
        """End the run."""
        if self._stepped is not None:
            _end(self._stepped, error)
            if self._claim is not None:
                _end_claim(self._claim, error)
            _watched.pop(self._stepped, None)

    def _begin_run(self) -> Run:
        runtime = attach()
        if runtime is None or (self._claim is not None and not _is_ours(self._claim, runtime)):
            return Run(self._name, self._name, None)
        parent = _current.get()
        handle = None
        try:
            handle = runtime.begin_run(
                self._name,
                key=self._key,
                session=self._session,
                metadata=self._metadata,
                parent=parent.handle if parent else None,
                claim=self._claim,
            )
            return Run(handle.name, handle.run_id, handle)
        except BaseException as error:
            if handle is not None:
                runtime.end_run(handle, error)
            if not isinstance(error, Exception) or issubclass(type(error), RecursionError):
                raise
            runtime.report_failure("collection", error)  # raises an interruption
            return Run(self._name, self._name, None)

    def _for_call(self, *args: object, **kwargs: object) -> "RunContext":
        key = self._key
        if callable(key) and is_on():
            try:
                key = key(*args, **kwargs)
            except Exception as error:  # noqa: BLE001  # the call itself must not fail
                pass_on(error)
                log_failure("key_failed", error)
                key = None
        return RunContext(
            self._name, key=key, session=self._session, metadata=self._metadata, claim=self._claim
        )


def _is_ours(claim: object, runtime: "Runtime") -> bool:
    """Return whether a claim is of the store in use here; if it is not, log why."""
    from tau_live.core.records import ITEM, Claim
    from tau_live.core.settings import place_paths

    if type(claim) is not Claim:
        why = f"claim must be what store.queue.claim returned, got {type(claim).__name__}"
    else:
        with suppress(Exception):  # a claim may be made by hand, and a folder gone
            own = place_paths(runtime.settings, State.folder).store
            if claim.queue.path.samefile(own):
                return True
        if claim.rollout.name == ITEM and claim.rollout.mode is not None:
            return False  # its worker stores it
        why = "the claim is of another store than the one in use here: see TAU_LIVE_RL_STORE"
    log_failure("claimed_run_not_recorded", ValueError(why))
    return False


def _end_claim(claim: "Claim", error: BaseException | None) -> None:
    """End a claimed attempt with its run; whoever ended it before had the last word."""
    try:
        from tau_live.core.records import AttemptStatus, Claim

        if type(claim) is not Claim:
            return
        names = {kind.__name__ for kind in type.mro(type(error))}
        if error is None:
            claim.finish()
        elif names & {"CancelledError", "GeneratorExit", "KeyboardInterrupt", "SystemExit"}:
            claim.queue.cancel(claim.rollout.rollout_id, number=claim.attempt.number)
        else:
            ending = AttemptStatus.TIMEOUT if "TimeoutError" in names else AttemptStatus.FAILED
            claim.finish(ending, error_message=type(error).__name__)
    except Exception as failure:  # noqa: BLE001  # the border to the host
        log_failure("claim_not_finished", failure)


def _end(entered: Run, error: BaseException | None) -> None:
    if entered.handle is not None and (runtime := attach()) is not None:
        runtime.end_run(entered.handle, error)


def _step_back(stepped: Run | None, before: Run | None) -> None:
    if _current.get() is stepped:
        set_variable(_current, before)


def _abandon(entered: Run) -> None:
    """End a run that can no longer be left."""
    _watched.pop(entered, None)
    if _current.get() is entered:
        set_variable(_current, None)
    runtime = State.runtime
    if entered.handle is not None and runtime is not None:
        runtime.abandon_run(entered.handle)


def _own_choice(options: object, default: object, allowed: Iterable[object] | None) -> Choice:
    """Return the host's own choice, if it is allowed."""
    if allowed is None:
        return fallback(options, default)
    try:
        if State.unfit:  # an import may wait for ever
            return _plain_choice(default, allowed)
        from tau_live.core.offers import mask_of, own_choice
    except Exception as error:  # noqa: BLE001  # the interpreter ends, or a file hides a module
        log_failure("mask_not_read", error)
        return _plain_choice(default, allowed)
    return own_choice(options, default, mask_of(allowed))


def _plain_choice(default: object, allowed: Iterable[object]) -> Choice:
    names = [allowed] if isinstance(allowed, str) else list(allowed)
    return fallback(names, default if default in names else None)


def _without_room(options: object, default: object, allowed: Iterable[object] | None) -> Choice:
    """Return the host's own choice when its stack is nearly exhausted."""
    if default is not None and allowed is None:
        return Choice(default, None, "default", "", 0, "")
    return _own_choice(options, default, allowed)


def _inside() -> "RunHandle | None":
    return entered.handle if (entered := _current.get()) is not None else None


def each_call_in(function: Callable[P, R], scope: Callable[..., RunContext]) -> Callable[P, R]:
    """Wrap a function so that each call runs inside its own ``scope(*args, **kwargs)``.

    A coroutine, generator or async generator is inside it until it is exhausted, closed or fails,
    and keeps its kind and signature.
    """
    wrapper: Any
    if _is("isasyncgenfunction", function):
        wrapper = _async_generator(function, scope)
    elif _is("iscoroutinefunction", function):
        wrapper = _coroutine(function, scope)
    elif _is("isgeneratorfunction", function):
        wrapper = _generator(function, scope)
    else:
        wrapper = _plain(function, scope)
    with suppress(Exception):  # a host's callable may raise at any access
        functools.update_wrapper(wrapper, function)
    wrapped: Callable[P, R] = wrapper
    return wrapped


def _is(name: str, function: object) -> bool:
    with suppress(Exception):  # a host's callable may raise at any access, and a file hide inspect
        kind: Callable[[object], bool] = getattr(inspect, name)
        return kind(function) or kind(type(function).__call__)
    return False


def _plain(function: Callable[..., Any], scope: Callable[..., RunContext]) -> Callable[..., Any]:
    def call(*args: object, **kwargs: object) -> object:
        with scope(*args, **kwargs):
            return function(*args, **kwargs)

    return call


def _coroutine(
    function: Callable[..., Any], scope: Callable[..., RunContext]
) -> Callable[..., Any]:
    async def call(*args: object, **kwargs: object) -> object:
        with scope(*args, **kwargs):
            return await function(*args, **kwargs)

    return call


def _generator(
    function: Callable[..., Any], scope: Callable[..., RunContext]
) -> Callable[..., Any]:
    def call(*args: object, **kwargs: object) -> Generator[object, object, object]:
        inner = function(*args, **kwargs)  # before the run: it fails where the arguments do not fit
        inside = scope(*args, **kwargs)
        inside.begin()
        step: Callable[[], object] = functools.partial(next, inner)
        closed: GeneratorExit | None = None
        try:
            while True:
                with inside.step():
                    item = step()
                try:
                    step = functools.partial(inner.send, (yield item))
                except BaseException as error:  # noqa: BLE001  # whatever is thrown in goes on in
                    closed = error if isinstance(error, GeneratorExit) else None
                    step = functools.partial(inner.throw, error)
        except StopIteration as stop:
            inside.finish(closed)
            return stop.value
        except BaseException as error:
            inside.finish(error)
            raise

    return call


def _async_generator(
    function: Callable[..., Any], scope: Callable[..., RunContext]
) -> Callable[..., Any]:
    async def call(*args: object, **kwargs: object) -> AsyncGenerator[object, object]:
        inner = function(*args, **kwargs)  # before the run: it fails where the arguments do not fit
        inside = scope(*args, **kwargs)
        inside.begin()
        step: Callable[[], Any] = inner.__anext__
        closed: GeneratorExit | None = None
        try:
            while True:
                with inside.step():
                    item = await step()
                try:
                    step = functools.partial(inner.asend, (yield item))
                except BaseException as error:  # noqa: BLE001  # whatever is thrown in goes on in
                    closed = error if isinstance(error, GeneratorExit) else None
                    step = functools.partial(inner.athrow, error)
        except StopAsyncIteration:
            inside.finish(closed)
        except BaseException as error:
            inside.finish(error)
            raise

    return call
