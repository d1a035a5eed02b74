"""Finding plugins and calling them so that none can hurt the host or another plugin."""

import inspect
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from importlib import metadata
from typing import Any, TypeVar

import pluggy
from msgspec import Struct, structs

from tau_live.core import hookspecs
from tau_live.core.entry_points import is_ours, read_entry_points
from tau_live.core.errors import SettingsError, pass_on, suppress
from tau_live.core.guard import contain, logger, text_of
from tau_live.core.hookspecs import (
    Answer,
    DecisionRequest,
    RewardPart,
    RolloutSummary,
    Text,
    Translate,
)
from tau_live.core.records import Span

GROUP = hookspecs.PROJECT
T = TypeVar("T")
_FAILURE_LIMIT = 3
_NAMES = frozenset({str})
_FIXED = frozenset({str, int, float, bool, bytes, type(None)})
_CONTAINERS = frozenset({dict, list, tuple})
MUST_SEE = frozenset({"redact", "redact_text"})  # without their plugins, nothing unchecked is kept


@dataclass(slots=True, kw_only=True)
class PluginReport:
    """The state of a plugin.

    Attributes:
        name: Its name, as in ``TAU_LIVE_RL_PLUGINS_OFF``.
        hooks: The hooks it implements.
        failures: How often it raised since the start.
        disabled: Whether it is not called any more.
        problem: The last error, or why it was left out; ``None`` if all is well.
    """

    name: str
    hooks: tuple[str, ...] = ()
    failures: int = 0
    disabled: bool = False
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class _Call:
    """One implementation of one hook."""

    plugin: str
    hook: str
    function: Callable[..., Any]
    takes_argument: bool
    is_ours: bool

    def __call__(self, argument: object) -> Any:  # noqa: ANN401 - plugins return what they like
        return self.function(argument) if self.takes_argument else self.function()


class Plugins:
    """All plugins of a process; one object, called from any thread.

    Args:
        off: Names of plugins that are not loaded.
        strict: Whether a plugin that is wrong (a misspelt hook, wrong arguments) is an error,
            as at the start of the command line, and not a warning, as in a host.

    Attributes:
        listening: Whether calling a hook does anything, by hook.
        keeps_no_text: Whether no text may be kept, as a plugin that redacts has failed.
    """

    def __init__(self, *, off: Collection[str] = (), strict: bool = False) -> None:
        self._off = frozenset(off)
        self._strict = strict
        self._manager = pluggy.PluginManager(hookspecs.PROJECT)
        self._manager.add_hookspecs(hookspecs)
        self._hooks = tuple(
            name for name, hook in vars(hookspecs).items() if hasattr(hook, f"{GROUP}_spec")
        )
        self._lock = threading.RLock()
        self._states: dict[str, PluginReport] = {}
        self._ours: set[str] = set()  # they do not change their arguments, and need no copy
        self._calls: Mapping[str, tuple[_Call, ...]] = {}
        self.listening: Mapping[str, bool] = {}
        self._blind: frozenset[str] = frozenset()
        self.keeps_no_text = False
        self._arrange()

    def load(self, entry_points: Iterable[metadata.EntryPoint] | None = None) -> None:
        """Register the plugins of installed packages, each behind a guard of its own.

        Args:
            entry_points: ``None`` takes those of the group ``tau_live``, ours included.

        Raises:
            SettingsError: A plugin is wrong, and ``strict`` is set; never for one that cannot
                be imported, which is logged and left out.
        """
        for entry_point in read_entry_points().plugins if entry_points is None else entry_points:
            if entry_point.name in self._off:
                continue
            try:
                plugin = entry_point.load()
            except (Exception, SystemExit) as error:  # noqa: BLE001 - other people's code
                pass_on(error)
                problem = f"cannot be imported: {type(error).__name__}: {text_of(error)}"
                self._leave_out(entry_point.name, problem)
            else:
                self.register(plugin, name=entry_point.name, is_ours=is_ours(entry_point))

    def register(self, plugin: object, *, name: str, is_ours: bool = False) -> bool:
        """Register an object whose hooks are called before those registered earlier.

        Args:
            plugin: The object.
            name: Its name, by which it is left out and reported.
            is_ours: Whether it does not change its arguments, and so needs no copy.

        Returns:
            Whether it was registered; not if it is switched off, its name is taken, or it is wrong.

        Raises:
            SettingsError: It is wrong, and ``strict`` is set.
        """
        if name in self._off:
            return False
        try:
            problem = self._problem_of(plugin, name) or self._register(plugin, name)
        except Exception as error:  # noqa: BLE001 - attributes of other people's objects may raise
            pass_on(error)
            problem = f"{type(error).__name__}: {text_of(error)}"
        if problem is not None:
            self._leave_out(name, problem, hooks=self._marked_hooks(plugin))
            if self._strict:
                raise SettingsError(f"plugin {name!r} {problem}")
            return False
        with self._lock:
            callers = self._manager.get_hookcallers(plugin) or ()
            hooks = tuple(sorted(hook.name for hook in callers))
            self._states[name] = PluginReport(name=name, hooks=hooks)
            self._ours |= {name} if is_ours else set()
            self._arrange()
        return True

    def implements(self, plugin: object) -> bool:
        """Return whether an object has a function marked as an implementation of our hooks."""
        with suppress(Exception):  # attributes of other people's objects may raise
            return any(self._manager.parse_hookimpl_opts(plugin, name) for name in dir(plugin))
        return False

    def report(self) -> list[PluginReport]:
        """Return the state of every plugin, by name."""
        with self._lock:
            return [replace(self._states[name]) for name in sorted(self._states)]

    def tell(self, hook: str, argument: object) -> None:
        """Call every implementation of a hook that returns nothing."""
        for call in self._calls[hook]:
            try:
                call(own(argument))
            except BaseException as error:  # noqa: BLE001 - see contain
                self._record_failure(call, contain(error))

    def hosts(self) -> dict[str, Translate]:
        """Return the translators of hosts' lines, by host; the first plugin to name a host wins."""
        hosts: dict[str, Translate] = {}

        def register(name: str, make: Translate | None = None, *, adapter: object = None) -> None:
            if make is None and adapter is not None:
                return
            if not callable(make):
                raise TypeError(f"expected a function for host {name!r}, got {make!r}")
            hosts.setdefault(str(name), make)

        self.tell("register_hosts", register)
        return hosts

    def adapters(self) -> dict[str, object]:
        """Return the adapters of plugins, by host; the first plugin to name a host wins."""
        adapters: dict[str, object] = {}

        def register(
            name: str,
            make: Translate | None = None,  # noqa: ARG001  # as hooks call it
            *,
            adapter: object = None,
        ) -> None:
            if adapter is not None:
                adapters.setdefault(str(name), adapter)

        self.tell("register_hosts", register)
        return adapters

    def decide(self, request: DecisionRequest) -> Answer | None:
        """Return the first answer that names an offered option; ``None`` if there is none."""
        options = tuple(request.options)  # before a plugin can write into it
        for call in self._calls["decide"]:
            try:
                answer = call(request)
                if answer is not None:
                    return _checked_answer(answer, options)
            except BaseException as error:  # noqa: BLE001 - see contain
                self._record_failure(call, contain(error))
        return None

    def infer_reward(self, summary: RolloutSummary) -> list[RewardPart]:
        """Return the parts of the reward that plugins infer, each name once, in their order."""
        parts: dict[str, RewardPart] = {}
        for call in self._calls["infer_reward"]:
            try:
                argument = summary if call.is_ours else own(summary)
                answer = call(argument) or ()
                inferred = [_of_kind(part, RewardPart, "RewardPart") for part in answer]
            except BaseException as error:  # noqa: BLE001 - see contain
                self._record_failure(call, contain(error))
            else:
                parts = {**parts, **{p.name: p for p in inferred if p.name not in parts}}
        return list(parts.values())

    def redact_text(self, text: Text) -> str | None:
        """Return what may be kept of a text; ``None`` where a plugin has failed."""
        kept, blind = self._pass_through("redact_text", text, _checked_text)
        return None if blind else kept.text

    def redact(self, span: Span) -> Span:
        """Return the span as it may be written; without attributes where a plugin has failed."""
        kept, blind = self._pass_through("redact", span, _checked_span)
        return structs.replace(kept, attributes={}) if blind else kept

    def _pass_through(self, hook: str, value: T, check: Callable[[object, T], T]) -> tuple[T, bool]:
        """Return a value as plugins changed it, and whether one of them has failed."""
        blind = hook in self._blind
        for call in self._calls[hook]:
            try:
                answer = call(value)
                value = value if answer is None else check(answer, value)
            except BaseException as error:  # noqa: BLE001 - see contain
                self._record_failure(call, contain(error))
                blind = True
        return value, blind

    def _record_failure(self, call: _Call, error: BaseException) -> None:
        with self._lock:
            state = self._states[call.plugin]
            state.failures += 1
            state.problem = f"{call.hook}: {type(error).__name__}: {text_of(error)}"
            if state.failures >= _FAILURE_LIMIT and not state.disabled:
                state.disabled = True
                self._arrange()
            now = replace(state)
        logger().warning(
            "plugin_failed",
            plugin=call.plugin,
            problem=now.problem,
            failures=now.failures,
            disabled=now.disabled,
        )

    def _leave_out(self, name: str, problem: str, hooks: tuple[str, ...] = ()) -> None:
        with self._lock:
            left_out = PluginReport(name=name, hooks=hooks, disabled=True)
            self._states.setdefault(name, left_out).problem = problem
            self._arrange()
        logger().warning("plugin_left_out", plugin=name, problem=problem)

    def _marked_hooks(self, plugin: object) -> tuple[str, ...]:
        """Return the hooks that a refused object would implement."""
        hooks: list[str] = []
        if self._manager.is_registered(plugin):  # under another name, by which it is called
            return ()
        for hook in self._hooks:
            with suppress(Exception):  # it may have none of that name, or raise
                if self._manager.parse_hookimpl_opts(plugin, hook):
                    hooks.append(hook)
        return tuple(sorted(hooks))

    def _problem_of(self, plugin: object, name: str) -> str | None:
        """Return what is wrong with a plugin's name or its marked functions, if anything is."""
        if self._manager.has_plugin(name) or self._manager.is_registered(plugin):
            return "is already registered"
        for attribute in dir(plugin):
            options = self._manager.parse_hookimpl_opts(plugin, attribute)
            if options is None:
                continue
            hook = options.get("specname") or attribute
            if hook not in self._hooks and not options.get("optionalhook"):
                return (
                    f"implements {hook!r}, which is not a hook; hooks are {', '.join(self._hooks)}"
                )
            if options.get("wrapper") or options.get("hookwrapper"):
                return f"wraps {hook!r}; wrappers are not called"
            if inspect.iscoroutinefunction(getattr(plugin, attribute)):
                return f"implements {hook!r} as a coroutine; hooks are plain functions"
        return None

    def _register(self, plugin: object, name: str) -> str | None:
        """Register a plugin with pluggy, or return why that refuses it."""
        try:
            self._manager.register(plugin, name=name)
        except pluggy.PluginValidationError as error:
            if self._manager.is_registered(plugin):  # before pluggy 1.7, with half of its hooks
                self._manager.unregister(plugin)
            return " ".join(text_of(error).split())
        return None

    def _arrange(self) -> None:
        """Build the tables of calls, in pluggy's order, without disabled plugins."""
        enabled = {name for name, state in self._states.items() if not state.disabled}
        self._calls = {
            hook: tuple(
                _Call(
                    implementation.plugin_name,
                    hook,
                    implementation.function,
                    bool(implementation.argnames),
                    implementation.plugin_name in self._ours,
                )
                for implementation in reversed(getattr(self._manager.hook, hook).get_hookimpls())
                if implementation.plugin_name in enabled
            )
            for hook in self._hooks
        }
        self._blind = MUST_SEE.intersection(
            hook
            for name, state in self._states.items()
            for hook in state.hooks
            if name not in enabled
        )
        self.keeps_no_text = "redact_text" in self._blind
        listening = {hook: bool(calls) for hook, calls in self._calls.items()}
        self.listening = listening | dict.fromkeys(self._blind, True)


def _checked_answer(value: object, options: Sequence[str]) -> Answer:
    answer = _of_kind(value, Answer, "an Answer or None")
    if answer.option not in options:
        raise ValueError(f"expected one of {list(options)}, got {answer.option!r}")
    return answer


def _of_kind(value: object, kind: type[T], expected: str) -> T:
    if not isinstance(value, kind):
        raise TypeError(f"expected {expected}, got {type(value).__name__}")
    return value


def _checked_text(answer: object, text: Text) -> Text:
    return structs.replace(text, text=str.__str__(_of_kind(answer, str, "a text or None")))


def _checked_span(answer: object, span: Span) -> Span:
    kept = _of_kind(answer, Span, "a Span or None")
    return structs.replace(span, name=kept.name, attributes=kept.attributes)


def own(value: T) -> T:
    """Return a copy of plain data, or of a struct with such data in it, for one plugin alone."""
    copied: T = _copy(value) if isinstance(value, dict | Struct) else value
    return copied


def _copy(value: Any) -> Any:  # noqa: ANN401  # plain data of any kind
    """Return a deep copy.

    Of plain data, as rewarders get it after every run, it takes a fifth of ``deepcopy``'s time.
    """
    kind = type(value)
    if kind in _FIXED:
        return value
    if kind is dict and _NAMES.issuperset(map(type, value)):
        return {n: item if type(item) in _FIXED else _copy(item) for n, item in value.items()}
    if kind is list:
        return [_copy(item) for item in value]
    if kind is tuple:
        return tuple(_copy(item) for item in value)
    if isinstance(value, Struct):
        fields = structs.asdict(value).items()
        return structs.replace(
            value, **{name: _copy(field) for name, field in fields if type(field) in _CONTAINERS}
        )
    return deepcopy(value)
