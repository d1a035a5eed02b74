"""Decisions of a log as the events of runs, as a host would have reported them.

What a row earned is the run's where it is the run's last row, and else the decision's. So of every
run the newest reward waits until it is known whether more follows; so many runs are kept open.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

from tau_live import events as ev
from tau_live.handed.plain import Limits, plain
from tau_live.handed.values import text_of
from tau_live.importing.logged import Logged
from tau_live.machine.quick import made
from tau_live.privacy.redaction import clean_id
from tau_live.rl.features import encode, pack
from tau_live.rollouts import IMPORTED, decision_id_of, rollout_id_of

HOST = "import"
SOURCE = IMPORTED
"""Who says so: in the arm and the source of decisions, and in the source of rewards."""

OPEN_RUNS = 10_000
"""A run ends when so many others were heard of since; what follows of it comes late."""


@dataclass(slots=True)
class _Open:
    """A run that may go on."""

    at: float
    ordinal: int
    reward: float | None
    execution: str = ""


class Runs:
    """Turns the decisions of one log into events.

    Args:
        stream: Names the log; with the line it makes the ids of runs that have none.
        otherwise: When decisions were made whose log does not say, in epoch seconds.
        width: How wide the policy's features are.
        reward: How rewards are called.
        limits: Bounds of what is taken over, as of what a host hands over.
    """

    def __init__(
        self, stream: str, *, otherwise: float, width: int, reward: str, limits: Limits
    ) -> None:
        self._stream = stream
        self._otherwise = otherwise
        self._width = width
        self._reward = reward
        self._limits = limits
        self._open: OrderedDict[str, _Open] = OrderedDict()

    def told(self, logged: Logged, line: int) -> Iterator[ev.Event]:
        """Yield the events that one more decision tells."""
        key = clean_id(f"{self._stream}#{line}" if logged.run is None else text_of(logged.run))
        before = self._open.pop(key, None)
        execution = before.execution if before else self._execution(logged)
        at = logged.at
        if at is None:
            at = before.at if before else self._otherwise
        ordinal = logged.step or (1 if logged.run is None else line)
        if before is None:
            yield made(
                ev.RunStart,
                host=HOST,
                run_id=key,
                execution=execution,
                at=at,
                name=logged.name,
                session_id=logged.session,
            )
        elif before.reward is not None:
            yield self._earned(key, before, decision=before.ordinal)
        yield decision_of(
            logged, host=HOST, run_id=key, at=at, ordinal=ordinal, execution=execution,
            width=self._width, limits=self._limits,
        )  # fmt: skip
        now = _Open(at, ordinal, logged.reward, execution)
        if logged.run is None or logged.end:
            yield from self._ended(key, now)
            return
        self._open[key] = now
        if len(self._open) > OPEN_RUNS:
            yield from self._ended(*self._open.popitem(last=False))

    def finished(self) -> Iterator[ev.Event]:
        """Yield the ends of the runs that are still open."""
        while self._open:
            yield from self._ended(*self._open.popitem(last=False))

    def _execution(self, logged: Logged) -> str:
        """Return what tells a run of this log from one that is told again later.

        Times do, where the log has them. Else they are when the file was last written, so the same
        line would look like a later attempt once the file was copied or has grown: the log does.
        """
        return self._stream if logged.at is None else ""

    def _ended(self, key: str, run: _Open) -> Iterator[ev.Event]:
        if run.reward is not None:
            yield self._earned(key, run, decision=None)
        yield made(
            ev.RunEnd,
            host=HOST,
            run_id=key,
            execution=run.execution,
            at=run.at,
            status=ev.Status.OK,
        )

    def _earned(self, key: str, run: _Open, *, decision: int | None) -> ev.Reward:
        rollout_id = rollout_id_of(HOST, key)
        return made(
            ev.Reward,
            host=HOST,
            run_id=key,
            execution=run.execution,
            at=run.at,
            decision_id=None if decision is None else decision_id_of(rollout_id, 1, decision),
            name=self._reward,
            value=run.reward,
            source=SOURCE,
        )


def decision_of(  # noqa: PLR0913  # what an event is made of, all keyword-only
    logged: Logged,
    *,
    host: str,
    run_id: str,
    at: float,
    ordinal: int,
    width: int,
    limits: Limits,
    execution: str = "",
) -> ev.Decision:
    """Return the event of a decision, with the features encoded as the live path does it.

    Without a propensity it was the host's own choice, which is recorded as such and never learned
    from as if it had one.
    """
    context = _plain(logged.context, limits)
    features = [None if of is None else _plain(of, limits) for of in logged.options.features]
    names = logged.options.names
    encoded = encode(context, list(zip(names, features, strict=True)), width=width)
    own = logged.option if logged.propensity is None else None
    return made(
        ev.Decision,
        execution=execution,
        host=host,
        run_id=run_id,
        at=at,
        ordinal=ordinal,
        point=logged.point,
        options=names,
        chosen=logged.chosen or logged.option,
        applied=logged.option,
        default=logged.default or own,
        source=SOURCE,
        propensity=logged.propensity,
        probabilities=logged.probabilities,
        arm=SOURCE,
        context=context,
        features={name: of for name, of in zip(names, features, strict=True) if of},
        encoded=pack(encoded),
    )


def _plain(found: dict[str, object], limits: Limits) -> dict[str, object]:
    kept = plain(found, limits=limits)
    return {**kept} if isinstance(kept, dict) else {}
