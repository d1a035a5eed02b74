"""Finding plugins and calling them so that none can hurt the host or another plugin."""

import inspect
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from typing import Any, TypeVar

import pluggy
from msgspec import structs

from tau_live import hookspecs
from tau_live.errors import SettingsError, pass_on, suppress
from tau_live.events import Event
from tau_live.guard import contained, logger, text_of
from tau_live.handed.given import own
from tau_live.hookspecs import (
    Alert,
    Answer,
    DecisionRequest,
    Promotion,
    RewardPart,
    RolloutSummary,
    Text,
    Translate,
)
from tau_live.rollouts import Span

GROUP = hookspecs.PROJECT
T = TypeVar("T")
_CHANCES = 3
MUST_SEE = frozenset({"redact", "redact_text"})  # what their plugins cannot see is not kept


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginReport:
    """What became of a plugin.

    Attributes:
        name: Its name, by which ``TAU_LIVE_RL_PLUGINS_OFF`` leaves it out.
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


@dataclass(slots=True, kw_only=True)
class _Standing:
    """How a plugin stands."""

    failures: int = 0
    disabled: bool = False
    problem: str | None = None
    hooks: tuple[str, ...] = ()
    is_ours: bool = False


class Plugins:
    """All plugins of a process; one object, called from any thread.

    Args:
        off: Names of plugins that are not loaded.
        strict: Whether a plugin that is wrong (a misspelt hook, wrong arguments) is an error,
            as at the start of the command line, and not a warning, as in a host.
    """

    def __init__(self, *, off: Collection[str] = (), strict: bool = False) -> None:
        self._off = frozenset(off)
        self._strict = strict
        self._manager = pluggy.PluginManager(hookspecs.PROJECT)
        self._manager.add_hookspecs(hookspecs)
        self._hooks = tuple(
            name for name, found in vars(hookspecs).items() if hasattr(found, f"{GROUP}_spec")
        )
        self._lock = threading.RLock()
        self._standings: dict[str, _Standing] = {}
        self._calls: Mapping[str, tuple[_Call, ...]] = {}
        self._listening: Mapping[str, bool] = {}
        self._blind: frozenset[str] = frozenset()
        self._arrange()

    def load(self, entry_points: Iterable[metadata.EntryPoint] | None = None) -> None:
        """Register what installed packages offer, each behind a guard of its own.

        Args:
            entry_points: ``None`` takes those of the group ``tau_live`` that are installed.

        Raises:
            SettingsError: A plugin is wrong, and ``strict`` is set; never for one that cannot
                be imported, which is logged and left out.
        """
        found = metadata.entry_points(group=GROUP) if entry_points is None else entry_points
        for entry_point in found:
            if entry_point.name in self._off:
                continue
            try:
                plugin = entry_point.load()
            except Exception as error:  # noqa: BLE001 - a border to other people's code
                pass_on(error)
                problem = f"cannot be imported: {type(error).__name__}: {text_of(error)}"
                self._leave_out(entry_point.name, problem)
            else:
                self.register(plugin, name=entry_point.name)

    def register(self, plugin: object, *, name: str, is_ours: bool = False) -> bool:
        """Register an object whose hooks are called before those registered earlier.

        Args:
            plugin: The object.
            name: By which it is left out, and reported.
            is_ours: Whether it changes nothing that it is given, and so needs no copy.

        Returns:
            Whether it is in; not if it is switched off, its name is taken, or it is wrong.

        Raises:
            SettingsError: It is wrong, and ``strict`` is set.
        """
        if name in self._off:
            return False
        try:
            problem = self._problem_of(plugin, name) or self._refused(plugin, name)
        except Exception as error:  # noqa: BLE001 - attributes of other people's objects may raise
            pass_on(error)
            problem = f"{type(error).__name__}: {text_of(error)}"
        if problem is not None:
            self._leave_out(name, problem, hooks=self._marked(plugin))
            if self._strict:
                raise SettingsError(f"plugin {name!r} {problem}")
            return False
        with self._lock:
            callers = self._manager.get_hookcallers(plugin) or ()
            hooks = tuple(sorted(hook.name for hook in callers))
            self._standings[name] = _Standing(hooks=hooks, is_ours=is_ours)
            self._arrange()
        return True

    def implements(self, plugin: object) -> bool:
        """Say whether an object has a function marked as an implementation of our hooks."""
        try:
            return any(self._manager.parse_hookimpl_opts(plugin, name) for name in dir(plugin))
        except Exception as error:  # noqa: BLE001 - attributes of other people's objects may raise
            pass_on(error)
            return False

    def listens(self, hook: str) -> bool:
        """Say whether calling a hook does anything; costs a look into a table."""
        return self._listening[hook]

    @property
    def keeps_no_text(self) -> bool:
        """Whether a plugin that redacts texts is not called: then none is kept."""
        return "redact_text" in self._blind

    def report(self) -> list[PluginReport]:
        """Return what became of every plugin, by name."""
        with self._lock:
            return [
                PluginReport(
                    name=name,
                    hooks=standing.hooks,
                    failures=standing.failures,
                    disabled=standing.disabled,
                    problem=standing.problem,
                )
                for name, standing in sorted(self._standings.items())
            ]

    def observe(self, event: Event) -> None:
        """Show an event to every plugin."""
        self._tell("observe", event)

    def gate_changed(self, snapshot: Mapping[str, object]) -> None:
        """Tell every plugin that the gate changed."""
        self._tell("gate_changed", snapshot)

    def update_finished(self, report: Mapping[str, object]) -> None:
        """Tell every plugin what an update did."""
        self._tell("update_finished", report)

    def policy_promoted(self, promotion: Promotion) -> None:
        """Tell every plugin that another version decides."""
        self._tell("policy_promoted", promotion)

    def alert_raised(self, alert: Alert) -> None:
        """Tell every plugin what somebody should hear of."""
        self._tell("alert_raised", alert)

    def hosts(self) -> dict[str, Translate]:
        """Return the hosts whose lines plugins can read, by name; the first to name one has it."""
        found: dict[str, Translate] = {}

        def register(name: str, make: Translate | None = None, *, adapter: object = None) -> None:
            if make is None and adapter is not None:
                return
            if not callable(make):
                raise TypeError(f"expected a function for host {name!r}, got {make!r}")
            found.setdefault(str(name), make)

        self._tell("register_hosts", register)
        return found

    def adapters(self) -> dict[str, object]:
        """Return the adapters that plugins register, by host; the first to name one has it."""
        found: dict[str, object] = {}

        def register(
            name: str,
            make: Translate | None = None,  # noqa: ARG001  # as hooks call it
            *,
            adapter: object = None,
        ) -> None:
            if adapter is not None:
                found.setdefault(str(name), adapter)

        self._tell("register_hosts", register)
        return found

    def register_commands(self, cli: object) -> None:
        """Let every plugin add commands to the ``click.Group``."""
        self._tell("register_commands", cli)

    def decide(self, request: DecisionRequest) -> Answer | None:
        """Return the first answer that names an offered option; ``None`` when nobody has one."""
        options = tuple(request.options)  # before a plugin can write into it
        for call in self._calls["decide"]:
            try:
                answer = call(request)
                if answer is not None:
                    return _checked_answer(answer, options)
            except BaseException as error:  # noqa: BLE001 - see contained
                self._failed(call, contained(error))
        return None

    def infer_reward(self, summary: RolloutSummary) -> list[RewardPart]:
        """Return the parts of the reward that plugins infer, each name once, in their order."""
        parts: dict[str, RewardPart] = {}
        for call in self._calls["infer_reward"]:
            try:
                given = summary if call.is_ours else own(summary)
                found = [_checked_part(part) for part in call(given) or ()]
            except BaseException as error:  # noqa: BLE001 - see contained
                self._failed(call, contained(error))
            else:
                parts = {**parts, **{p.name: p for p in found if p.name not in parts}}
        return list(parts.values())

    def redact_text(self, text: Text) -> str | None:
        """Return what may be kept of a text; ``None`` where a plugin has failed."""
        kept, blind = self._past("redact_text", text, _checked_text)
        return None if blind else kept.text

    def redact(self, span: Span) -> Span:
        """Return the span as it may be written; without attributes where a plugin has failed."""
        kept, blind = self._past("redact", span, _checked_span)
        return structs.replace(kept, attributes={}) if blind else kept

    def _past(self, hook: str, given: T, checked: Callable[[object, T], T]) -> tuple[T, bool]:
        """Return what plugins leave of something, and whether one of them has failed."""
        blind = hook in self._blind
        for call in self._calls[hook]:
            try:
                found = call(given)
                given = given if found is None else checked(found, given)
            except BaseException as error:  # noqa: BLE001 - see contained
                self._failed(call, contained(error))
                blind = True
        return given, blind

    def _tell(self, hook: str, argument: object) -> None:
        for call in self._calls[hook]:
            try:
                call(own(argument))
            except BaseException as error:  # noqa: BLE001 - see contained
                self._failed(call, contained(error))

    def _failed(self, call: _Call, error: BaseException) -> None:
        with self._lock:
            standing = self._standings[call.plugin]
            standing.failures += 1
            standing.problem = f"{call.hook}: {type(error).__name__}: {text_of(error)}"
            if standing.failures >= _CHANCES and not standing.disabled:
                standing.disabled = True
                self._arrange()
            failures, disabled, problem = standing.failures, standing.disabled, standing.problem
        logger().warning(
            "plugin_failed",
            plugin=call.plugin,
            problem=problem,
            failures=failures,
            disabled=disabled,
        )

    def _leave_out(self, name: str, problem: str, hooks: tuple[str, ...] = ()) -> None:
        with self._lock:
            standing = self._standings.setdefault(name, _Standing(disabled=True, hooks=hooks))
            standing.problem = problem
            self._arrange()
        logger().warning("plugin_left_out", plugin=name, problem=problem)

    def _marked(self, plugin: object) -> tuple[str, ...]:
        """Return the hooks that an object would implement, were it not wrong."""
        found: list[str] = []
        if self._manager.is_registered(plugin):  # under another name, by which it is called
            return ()
        for hook in self._hooks:
            with suppress(Exception):  # it may have none of that name, or raise
                if self._manager.parse_hookimpl_opts(plugin, hook):
                    found.append(hook)
        return tuple(sorted(found))

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

    def _refused(self, plugin: object, name: str) -> str | None:
        """Register a plugin with pluggy, or return why that refuses it."""
        try:
            self._manager.register(plugin, name=name)
        except pluggy.PluginValidationError as error:
            if self._manager.is_registered(plugin):  # before pluggy 1.7, with half of its hooks
                self._manager.unregister(plugin)
            return " ".join(text_of(error).split())
        return None

    def _arrange(self) -> None:
        """Build the tables of what is called, in pluggy's order, without what is disabled."""
        enabled = {name for name, standing in self._standings.items() if not standing.disabled}
        self._calls = {
            hook: tuple(
                _Call(
                    found.plugin_name,
                    hook,
                    found.function,
                    bool(found.argnames),
                    self._standings[found.plugin_name].is_ours,
                )
                for found in reversed(getattr(self._manager.hook, hook).get_hookimpls())
                if found.plugin_name in enabled
            )
            for hook in self._hooks
        }
        self._blind = MUST_SEE.intersection(
            hook
            for name, standing in self._standings.items()
            for hook in standing.hooks
            if name not in enabled
        )
        listening = {hook: bool(calls) for hook, calls in self._calls.items()}
        self._listening = listening | dict.fromkeys(self._blind, True)


def _checked_answer(answer: object, options: Sequence[str]) -> Answer:
    if not isinstance(answer, Answer):
        raise TypeError(f"expected an Answer or None, got {type(answer).__name__}")
    if answer.option not in options:
        raise ValueError(f"expected one of {list(options)}, got {answer.option!r}")
    return answer


def _checked_part(part: object) -> RewardPart:
    if not isinstance(part, RewardPart):
        raise TypeError(f"expected RewardPart, got {type(part).__name__}")
    return part


def _checked_text(found: object, text: Text) -> Text:
    if not isinstance(found, str):
        raise TypeError(f"expected a text or None, got {type(found).__name__}")
    return replace(text, text=str.__str__(found))


def _checked_span(found: object, span: Span) -> Span:
    if not isinstance(found, Span):
        raise TypeError(f"expected a Span or None, got {type(found).__name__}")
    return structs.replace(span, name=found.name, attributes=found.attributes)
