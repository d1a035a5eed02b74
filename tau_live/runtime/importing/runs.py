"""Groups the decisions of a log into runs: whole ones if possible, else event by event.

The reward of a row belongs to the run if it is the run's last row, else to the decision. So the
newest reward of every run waits until it is known whether more rows follow, and a bounded number of
runs is kept open.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from math import inf
from operator import itemgetter

import msgspec
from msgspec.structs import replace

from tau_live.core.offers import text_of
from tau_live.core.records import (
    IMPORTED,
    Attempt,
    AttemptStatus,
    Decision,
    Reason,
    Reward,
    Rollout,
    RolloutConfig,
    RolloutStatus,
    WholeRollout,
    decision_id_of,
    rollout_id_of,
)
from tau_live.core.redaction import Redactor, clean_id
from tau_live.core.sanitize import Limits, plain
from tau_live.record.whole_runs import (
    RecordItem,
    StepOfRun,
    event_of_decision,
    event_of_reward,
    steps_of,
)
from tau_live.rl.features import Features, encode, pack
from tau_live.rl.shapes import Shapes
from tau_live.runtime.importing import rows
from tau_live.runtime.importing.rows import (
    FieldError,
    Options,
    Place,
    Places,
    Row,
    column_of,
    select_columns,
    value_at,
)

_RARE = frozenset({"step", "end", "chosen", "default", "probabilities", "session", "name"})
"""Fields that most logs do not have."""


class Logged(msgspec.Struct, frozen=True, kw_only=True):
    """One decision of a log.

    Attributes:
        run: The id that the rows of its run share; ``None`` for a run of its own.
        step: Its place in the run, from 1; ``None`` if unknown.
        end: Whether it is marked as the last of its run.
        at: Epoch seconds, UTC; ``None`` if unknown.
        point: The decision point.
        options: The options offered.
        option: The applied option.
        chosen: The option that a policy chose; ``None`` if unknown.
        default: The host's own choice; ``None`` if unknown.
        propensity: The probability with which the applied option was chosen; ``None`` if unknown.
        probabilities: ``[A]``, or empty.
        context: The context.
        reward: The reward; ``None`` if unknown.
        session: The id that the runs of one conversation share.
        name: The kind of run.
    """

    run: str | None = None
    step: int | None = None
    end: bool = False
    at: float | None = None
    point: str
    options: Options
    option: str
    chosen: str | None = None
    default: str | None = None
    propensity: float | None = None
    probabilities: tuple[float, ...] = ()
    context: Features = msgspec.field(default_factory=dict)
    reward: float | None = None
    session: str | None = None
    name: str = ""


class Reader:
    """Reads the decisions of rows.

    Args:
        places: The places of fields that are not under their own names.
        point: The decision point of rows without one.
        offered: The options of rows without any; empty for the applied one alone.
        cells: Whether all values are text.
        columns: Whether rows are of a table, in which the context may have columns of its own.
    """

    def __init__(
        self,
        places: Places,
        *,
        point: str | None,
        offered: Sequence[str],
        cells: bool,
        columns: bool = False,
    ) -> None:
        self._places = places
        self._point = point
        self._offered = Options(tuple(offered), (None,) * len(offered))
        self._cells = cells
        self._columns = columns
        self._unseen = {path for place in places.values() for path in place.paths}

    @property
    def unseen(self) -> list[str]:
        """The mapped columns that no row had."""
        return sorted(self._unseen)

    def option(self, row: Row) -> str | None:
        """Return the applied option of a row; ``None`` if it cannot be read."""
        try:
            return self._read("option", self._value(row, "option"), rows.name_of)
        except FieldError:
            return None

    def decision(self, row: Row) -> Logged:
        """Return the decision of a row.

        Raises:
            FieldError: A field is missing or malformed.
        """
        fields = row
        if self._places:
            fields = {**row, **{name: self._value(row, name) for name in self._places}}
        # Most logs have none of the rare fields, which are then not read one by one.
        rare = {} if _RARE.isdisjoint(fields) else fields

        option = self._read("option", fields.get("option"), rows.name_of)
        point = self._read("point", fields.get("point"), rows.name_of) or self._point
        if option is None:
            raise self._error("option", "expected an option, got nothing")
        if point is None:
            raise self._error("point", "expected a decision point: see --point")
        options = self._options(fields, option)
        probabilities: tuple[float, ...] = ()
        chosen = None
        if rare:
            of_these = partial(rows.probabilities_of, names=options.names)
            probabilities = self._read("probabilities", rare.get("probabilities"), of_these) or ()
            chosen = self._name_of_option("chosen", rare, options)
        propensity = self._read("propensity", fields.get("propensity"), rows.probability_of)
        if propensity is None and probabilities and chosen is None:
            propensity = probabilities[options.names.index(option)]
        reward = self._read("reward", fields.get("reward"), rows.number_of)
        if reward is not None and self._places.get("reward", Place(())).negated:
            reward = 0.0 - reward
        return Logged(
            run=self._read("run", fields.get("run"), rows.name_of),
            step=self._read("step", rare.get("step"), rows.ordinal_of),
            end=self._read("end", rare.get("end"), rows.bool_of) or False,
            at=self._read("at", fields.get("at"), rows.time_of),
            point=point,
            options=options,
            option=option,
            chosen=chosen,
            default=self._name_of_option("default", rare, options) if rare else None,
            propensity=propensity,
            probabilities=probabilities,
            context=self._context(row, fields),
            reward=reward,
            session=self._read("session", rare.get("session"), rows.name_of),
            name=self._read("name", rare.get("name"), rows.name_of) or "",
        )

    def _value(self, row: Row, field: str) -> object:
        place = self._places.get(field)
        if place is None:
            return row.get(field)
        if field == "context":
            columns = select_columns(row, place.paths)
            if columns:
                self._unseen.difference_update(place.paths)
            whole = len(place.paths) == 1 and isinstance(columns.get(place.paths[0]), Mapping)
            return columns[place.paths[0]] if whole else columns
        value = value_at(row, place.paths[0])
        if value is not None:
            self._unseen.discard(place.paths[0])
        return value

    def _read(
        self, field: str, value: object, reader: "rows.Reading[rows.Read | None]"
    ) -> "rows.Read | None":
        """Return a field as converted by ``reader``; ``None`` if it is missing."""
        if value is None:
            return None
        try:
            return reader(value)
        except (ValueError, OverflowError) as error:
            raise self._error(field, str(error)) from error

    def _error(self, field: str, reason: str) -> FieldError:
        return FieldError(column_of(field, self._places), reason)

    def _options(self, fields: Row, option: str) -> Options:
        options = self._read("options", fields.get("options"), rows.options_of)
        if options is None or not options.names:
            options = self._offered if self._offered.names else Options((option,), (None,))
        if option not in options.names:
            expected = f"expected one of {len(options.names)} options"
            raise self._error("option", f"{expected}, got {option!r}")
        by_option = self._read("features", fields.get("features"), rows.features_by_option)
        if not by_option:
            return options
        features = (
            {**(own or {}), **by_option.get(name, {})} or None
            for name, own in zip(*options, strict=True)
        )
        return Options(options.names, tuple(features))

    def _name_of_option(self, field: str, fields: Row, options: Options) -> str | None:
        name = self._read(field, fields.get(field), rows.name_of)
        if name is not None and name not in options.names:
            raise self._error(field, f"expected one of the options, got {name!r}")
        return name

    def _context(self, row: Row, fields: Row) -> Features:
        context = fields.get("context")
        if self._columns and context is None:
            prefix = "context."
            context = {n.removeprefix(prefix): row[n] for n in row if n.startswith(prefix)}
        if self._cells and isinstance(context, Mapping):
            context = rows.cells_of(context)
            if fields.get("context") is None:
                return context
        return self._read("context", context, rows.features_of) or {}


HOST = "import"


class Records:
    """Makes stored decisions of logged ones.

    Args:
        width: The width of the policy's features.
        limits: Bounds of contexts and features.
        redactor: Removes secrets.
        reward: The name of rewards.
    """

    def __init__(self, *, width: int, limits: Limits, redactor: Redactor, reward: str) -> None:
        self._width = width
        self._shapes = Shapes(width)
        self._limits = limits
        self.redactor = redactor
        self.reward = redactor.redact(Reward(rollout_id="", name=reward, at=0.0)).name

    def decision_of(self, logged: Logged, *, rollout_id: str, ordinal: int, at: float) -> Decision:
        """Return the decision to be stored.

        Without a propensity it counts as the host's own choice, which the policy never learns from.
        """
        names = logged.options.names
        is_clean = self.redactor.leaves(logged.context)
        context = logged.context if is_clean else self._plain(logged.context)
        if any(logged.options.features):
            is_clean = False
            features = [of and self._plain(of) for of in logged.options.features]
            offered = [*zip(names, features, strict=True)]
            encoded = pack(encode(context, offered, width=self._width))
        else:
            offered = []
            encoded = self._shapes.pack(context, names)
        own = logged.option if logged.propensity is None else None
        chosen, default = logged.chosen or logged.option, logged.default or own
        decision = Decision(
            rollout_id=rollout_id,
            attempt=1,
            ordinal=ordinal,
            point=logged.point,
            options=names,
            chosen=chosen,
            applied=logged.option,
            default=default,
            source=IMPORTED,
            propensity=logged.propensity,
            probabilities=logged.probabilities,
            arm=IMPORTED,
            at=at,
            context=context,
            features={name: of for name, of in offered if of},
            encoded=encoded,
        )
        if is_clean and _are_clean(logged.point, chosen, default, names):
            return decision
        return self.redactor.redact(decision)

    def _plain(self, features: Features) -> Features:
        kept = plain(features, limits=self._limits)
        return {**kept} if isinstance(kept, dict) else {}


@lru_cache(maxsize=1_024)
def _are_clean(point: str, chosen: str, default: str | None, names: tuple[str, ...]) -> bool:
    """Return whether names are written unchanged; the applied option is one of ``names``."""
    return all(clean_id(name) == name for name in (point, chosen, default or "", *names))


OPEN_RUNS = 10_000
"""A run ends after rows of so many others; further rows of it come late."""


_CONFIG = RolloutConfig()

ROWS_HELD = 32_768
"""How many rows, some 50 MB, wait for the ends of their runs; beyond, they are passed on before."""


@dataclass(slots=True, eq=False)
class _Run:
    """A run of the log, with its rows that wait.

    Attributes:
        rollout: Its rollout, without its end.
        attempt: Its only attempt, without its end.
        at: Epoch seconds of its last row.
        ordinal: The ordinal of its last decision.
        reward: The reward of its last row; ``None`` if unknown.
        places: The number of each of its steps among the steps of all runs.
        decisions: Its decisions.
        rewards: The rewards of its decisions, then its own.
        has_ended: Whether its last step is its end.
        by_event: Whether it is passed on event by event, because too many rows would have to wait.
    """

    rollout: Rollout
    attempt: Attempt
    at: float
    ordinal: int = 0
    reward: float | None = None
    places: list[int] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    rewards: list[Reward] = field(default_factory=list)
    has_ended: bool = False
    by_event: bool = False

    @property
    def ids(self) -> dict[str, str]:
        """The ids of its events."""
        execution = self.attempt.execution
        return {"host": HOST, "run_id": self.rollout.run_id, "execution": execution}


class Runs:
    """Turns the decisions of one log into runs.

    They are passed on in batches, each with every run that began before one of its runs ended: so
    the store has them in the order of their starts, and ready in the order of their ends.

    Args:
        stream: The name of the log; with the line it makes the ids of runs without one.
        default_at: Epoch seconds of decisions without a time.
        records: Makes the decisions to be stored.
    """

    def __init__(self, stream: str, *, default_at: float, records: Records) -> None:
        self._stream = stream
        self._execution = clean_id(stream)
        self._default_at = default_at
        self._records = records
        self._open: OrderedDict[str, _Run] = OrderedDict()
        self._held: deque[_Run] = deque()
        self._due: list[tuple[int, Sequence[RecordItem]]] = []
        self._ended = self._rows = self._steps = self._last = 0

    def take(self, rows: Sequence[tuple[Logged, int]]) -> Iterator[list[RecordItem]]:
        """Take decisions, each with its line; yield a batch whenever one is due.

        Each step is done for all of them before the next: that takes three quarters of the time,
        because its code and data stay in the processor's caches.
        """
        keys = [self._key_of(logged, line) for logged, line in rows]
        decisions = [
            self._records.decision_of(
                logged,
                rollout_id=rollout_id_of(HOST, key),
                ordinal=logged.step or (1 if logged.run is None else line),
                at=self._default_at if logged.at is None else logged.at,
            )
            for key, (logged, line) in zip(keys, rows, strict=True)
        ]
        for key, (logged, _), decision in zip(keys, rows, decisions, strict=True):
            self._take(key, logged, decision)
            if self._is_due():
                yield self._batch()

    def finish(self) -> Iterator[list[RecordItem]]:
        """End the open runs, and yield the last batches."""
        while self._open:
            self._end(self._open.popitem(last=False)[1])
            if self._is_due():
                yield self._batch()
        yield self._batch()

    def _key_of(self, logged: Logged, line: int) -> str:
        return clean_id(f"{self._stream}#{line}" if logged.run is None else text_of(logged.run))

    def _take(self, key: str, logged: Logged, decision: Decision) -> None:
        run = self._open.pop(key, None)
        if run is None:
            run = self._begin(key, logged, decision)
        elif logged.at is None:
            decision = replace(decision, at=run.at)
        earned = self._rewards_of(run, decision=run.ordinal)
        run.at, run.ordinal, run.reward = decision.at, decision.ordinal, logged.reward
        self._add(run, decision, earned)
        if logged.run is None or logged.end:
            self._end(run)
            return
        self._open[key] = run
        if len(self._open) > OPEN_RUNS:
            self._end(self._open.popitem(last=False)[1])

    def _begin(self, key: str, logged: Logged, decision: Decision) -> _Run:
        # Times of the log distinguish a run from a later one with its id. Without them, the time is
        # that of the file's last change, and the same line would look like a later attempt once the
        # file was copied or has grown: there the name of the log does it.
        execution = self._execution if logged.at is None else ""
        rollout = Rollout(
            rollout_id=decision.rollout_id,
            host=HOST,
            run_id=key,
            session_id=logged.session,
            name=logged.name,
            status=RolloutStatus.SUCCEEDED,
            reason=Reason.COMPLETED,
            config=_CONFIG,
            attempt_count=1,
            started_at=decision.at,
        )
        attempt = Attempt(
            rollout_id=decision.rollout_id,
            number=1,
            status=AttemptStatus.SUCCEEDED,
            execution=execution,
            started_at=decision.at,
            last_heartbeat_at=decision.at,
        )
        if logged.name or logged.session:  # its id is clean already
            rollout = self._records.redactor.redact(rollout)
        run = _Run(rollout, attempt, decision.at)
        self._held.append(run)
        return run

    def _rewards_of(self, run: _Run, *, decision: int | None) -> Sequence[Reward]:
        """Return the reward of its last row, for that decision or for the run."""
        if run.reward is None:
            return ()
        rollout_id = run.rollout.rollout_id
        reward = Reward(
            rollout_id=rollout_id,
            decision_id=decision_id_of(rollout_id, 1, decision) if decision else None,
            name=self._records.reward,
            value=run.reward,
            source=IMPORTED,
            at=run.at,
        )
        return (reward,)

    def _add(self, run: _Run, decision: Decision, earned: Sequence[Reward]) -> None:
        """Hold a decision and the reward of the one before it; or pass them on."""
        self._steps += 1
        if run.by_event:
            rewards = [event_of_reward(reward, run.ids) for reward in earned]
            self._due.append((self._steps, [*rewards, event_of_decision(decision, run.ids)]))
            return
        run.places.append(self._steps)
        run.decisions.append(decision)
        run.rewards += earned
        self._rows += 1

    def _end(self, run: _Run) -> None:
        self._steps += 1
        run.has_ended = True
        run.places.append(self._steps)
        run.rewards += self._rewards_of(run, decision=None)
        if run.by_event:
            [_, *end] = next(steps_of(self._rows_of(run)))  # the first event is its start
            self._due.append((self._steps, end))
        else:
            self._last = max(self._last, run.places[0])
            self._ended += 1

    def _is_due(self) -> bool:
        return (
            # Many runs in one transaction, which writes each page that they share once.
            self._ended >= 2_048 or len(self._due) >= 4_096 or self._rows >= ROWS_HELD
        )

    def _batch(self) -> list[RecordItem]:
        """Return all due steps, and every run that began before one that has ended."""
        last = inf if self._rows >= ROWS_HELD else self._last
        steps, self._due, self._ended = self._due, [], 0
        while self._held and self._held[0].places[0] <= last:
            run = self._held.popleft()
            self._rows -= len(run.decisions)
            steps += zip(run.places, self._steps_of(run), strict=False)
        steps.sort(key=itemgetter(0))
        return [item for _, items in steps for item in items]

    def _steps_of(self, run: _Run) -> Iterable[Sequence[RecordItem]]:
        """Return the items of each step of a run, and release the run.

        It is passed on whole if it has ended and its decisions have distinct ordinals.
        """
        rows, decisions = self._rows_of(run), run.decisions
        if run.has_ended and len({decision.ordinal for decision in decisions}) == len(decisions):
            later = [
                StepOfRun(run.rollout.rollout_id, decision.at, is_last=False)
                for decision in decisions[1:]
            ]
            end = StepOfRun(run.rollout.rollout_id, run.at, is_last=True)
            return [[rows], *([decision] for decision in later), [end]]
        run.by_event, run.decisions, run.rewards = True, [], []
        return steps_of(rows)

    def _rows_of(self, run: _Run) -> WholeRollout:
        """Return the rows held of a run, as if they were all of it."""
        rollout = replace(run.rollout, ended_at=run.at)
        return WholeRollout(
            rollout, replace(run.attempt, ended_at=run.at), run.decisions, run.rewards
        )
