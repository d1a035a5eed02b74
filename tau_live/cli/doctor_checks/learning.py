"""Checks for what keeps an agent from learning, from the newest rows."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path

from tau_live.alerts import growing
from tau_live.attaching.hosts import ADAPTERS
from tau_live.builtin import BUILT_IN
from tau_live.cli.doctor_checks.check import OK, WARN, Check
from tau_live.cli.text import number, seconds
from tau_live.errors import TauLiveError
from tau_live.handed.reading import integer, mapping
from tau_live.learning.lease import LEASE
from tau_live.learning.monitoring import told as told_of
from tau_live.plugins import GROUP
from tau_live.reasons import FOREIGN_DEFAULT, RERUNS
from tau_live.reporting.declared import deadlines, outside_range, range_advice
from tau_live.reporting.summary import MANY_RERUNS
from tau_live.rewards.settling import reward_range
from tau_live.rollouts import RewardSource
from tau_live.settings import Learner, Settings
from tau_live.settings.kinds import nearest
from tau_live.status import REWARDS, attached_processes, rewards_seen, rollouts_by_status
from tau_live.store.lately import Lately, Offered, lately
from tau_live.store.roles import Store
from tau_live.store.sqlite import SqliteStore

ROWS = 2_000
FEW = 30
"""Of fewer rows nothing is said."""

UNTRIED = 300
TRIES = 5.0
ERROR = "error: "
REFUSED_SHARE = 0.1
LATE_SHARE = 0.1
ONE_SHARE = 0.9
OPEN = 10
AHEAD_S = 300.0
SOMEBODY = ":"
"""Stands in a source that names one of many, such as `user:anna`."""

MADE_UP = frozenset({RewardSource.INFERRED.value, RewardSource.DEFAULT.value})
REFUSED = (
    "refused_rewards", "rewards_refused", "rewards_refused_from_inside", "rewards_refused_source",
    "rewards_without_a_run", "rewards_without_target",
)  # fmt: skip


def acting_checks(settings: Settings) -> Iterator[Check]:
    """Yield what settings keep from happening that somebody has probably meant to."""
    points = ", ".join(one.point for one in settings.decisions)
    if points and not settings.act:
        found = f"declared at {points}, but adapters may not act"
        advice = "once recorded runs look right, set act = true, or TAU_LIVE_RL_ACT=1"
        yield Check("decisions", WARN, found, advice, "act-off")
    elif settings.act and not points:
        found = "adapters may act, but none is declared in the settings"
        advice = "`tau-live init` proposes some; options given in code need no declaration"
        yield Check("decisions", WARN, found, advice, "nothing-declared")
    installed = {
        one.name for group in (GROUP, ADAPTERS) for one in metadata.entry_points(group=group)
    }
    for name in settings.plugins_off:
        if name in installed:
            advice = "remove it from TAU_LIVE_RL_PLUGINS_OFF to use it"
            yield Check("plugins", WARN, f"{name} is switched off", advice, "plugin-off")
        elif name not in BUILT_IN:
            near = nearest(name, installed | BUILT_IN)
            advice = f"did you mean {near}?" if near else "remove it from TAU_LIVE_RL_PLUGINS_OFF"
            found = f"{name} is switched off but not installed"
            yield Check("plugins", WARN, found, advice, "plugin-unknown")


def learning_checks(file: Path, settings: Settings, *, now: float) -> Iterator[Check]:
    """Yield what the newest rows and the counters of a store say; nothing where it has none."""
    if not file.exists():
        return
    try:
        store = SqliteStore.open(file, read_only=True)
    except TauLiveError:  # another check says so
        return
    try:
        found = lately(file, limit=ROWS)
        counts = store.counters.counts()
        grown = growing.grew(counts, store.alerts.noted())
        recent = {
            name: n
            for name, n in counts.items()
            if name in grown and growing.lately(grown[name], now=now)
        }
        yield from _of_points(found.decisions, settings)
        yield from _of_defaults(recent)
        yield from _of_rewards(recent, found, store, settings)
        yield from _of_keys(recent)
        yield from _of_range(store, settings, found)
        yield from _of_runs(store)
        yield from _of_learner(store, settings, now=now)
        yield _of_clock(found, now=now)
    except TauLiveError:
        return
    finally:
        store.close()


def _of_points(decisions: Sequence[Offered], settings: Settings) -> Iterator[Check]:
    points: dict[str, list[Offered]] = {}
    for one in decisions:
        points.setdefault(one.point, []).append(one)
    for point, rows in sorted(points.items()):
        if len(rows) < FEW:
            continue
        if all(len(one.options) < 2 for one in rows):
            found = f"'{point}': the last {number(len(rows))} decisions offered one option"
            advice = "offer at least two; check what `never`, `allowed` and the adapter exclude"
            yield Check("options", WARN, found, advice, "one-option")
        yield from _untried(point, rows, settings.exploration)
        yield from _refused(point, rows)
        late = sum(one.why_not == "deadline" for one in rows)
        if late >= LATE_SHARE * len(rows):
            found = f"'{point}': {number(late)} of the last {number(len(rows))} missed the deadline"
            deadline = f"TAU_LIVE_RL_DECIDE_DEADLINE_MS ({settings.decide_deadline_ms:g} now)"
            advice = f"raise {deadline}, offer fewer options, or free the machine"
            yield Check("decisions", WARN, found, advice, "decisions-late")


def _of_defaults(counts: Mapping[str, int]) -> Iterator[Check]:
    """Yield where the host's own choice was not among the options."""
    for name, times in counts.items():
        point = name.removeprefix(FOREIGN_DEFAULT)
        if times and point != name:
            found = f"'{point}': the default was not among the options, {number(times)} times"
            advice = "offer it under exactly the same name"
            yield Check("options", WARN, found, advice, "default-unoffered")


def _refused(point: str, rows: Sequence[Offered]) -> Iterator[Check]:
    """Yield why the host often did not take what was chosen."""
    errors = Counter(one.why_not for one in rows if (one.why_not or "").startswith(ERROR))
    if errors.total() >= REFUSED_SHARE * len(rows):
        for error, times in errors.most_common(1):
            found = f"'{point}': {number(times)} of the last {number(len(rows))}: {error}"
            advice = "declare only options that the host accepts; `tau-live show` names the option"
            yield Check("options", WARN, found, advice, "choices-refused")


def _untried(point: str, rows: Sequence[Offered], exploration: float) -> Iterator[Check]:
    """Yield the options that were there to be tried out and were not.

    With ``exploration`` each is tried at random in its share of it; where that comes to five, none
    at all is no chance (0.7 percent).
    """
    offered: Counter[str] = Counter()
    expected: dict[str, float] = {}
    ours = [one for one in rows if one.propensity is not None and len(one.options) > 1]
    for one in ours:
        for option in {*one.options} - {*one.unexplored}:
            offered[option] += 1
            expected[option] = expected.get(option, 0.0) + exploration / len(one.options)
    applied = {one.applied for one in ours}
    for option, times in sorted(offered.items()):
        enough = expected[option] >= TRIES if exploration else times >= UNTRIED
        if enough and option not in applied:
            found = f"'{point}': {option} was offered {number(times)} times and never chosen"
            advice = "raise TAU_LIVE_RL_EXPLORATION, or remove the option"
            yield Check("options", WARN, found, advice, "option-untried")


def _of_keys(counts: Mapping[str, int]) -> Iterator[Check]:
    runs = counts.get(RERUNS, 0)
    if runs >= MANY_RERUNS:
        told = f"{number(runs)} runs had the key of a run that had succeeded"
        advice = "give each run a `key` of its own, or none: nothing is learned from a repetition"
        yield Check("runs", WARN, told, advice, "keys-repeated")


def _of_range(store: Store, settings: Settings, found: Lately) -> Iterator[Check]:
    """Yield that rewards have no range, and where some are far beyond the others."""
    for point, one in store.monitors.monitors().items():
        if outliers := integer(told_of(one)["outliers"]):
            told = f"'{point}': {number(outliers)} of the newest are far beyond the others"
            advice = (
                "if they are real, declare the range (TAU_LIVE_RL_REWARD_RANGE); "
                "if not, find their source: `tau-live status --all`"
            )
            yield Check("rewards", WARN, told, advice, "rewards-beyond")
    status: dict[str, object] = {"rewards_seen": rewards_seen(store, settings)}
    if outside := outside_range(status, settings):
        advice = f"if they are right: {range_advice(status, settings)}; if not, find their source"
        yield Check("rewards", WARN, outside, advice, "rewards-out-of-range")
    names = list(mapping(mapping(status["rewards_seen"])["names"]))
    if len(names) > 1 and all(one.cost for one in settings.rewards):
        told = f"{', '.join(names)} are added up, since none is declared"
        advice = "declare those that count, with their weights: docs/howto/rewards.md"
        yield Check("rewards", WARN, told, advice, "rewards-added-up")
    if found.rewards and reward_range(settings) is None:
        told = "no range is declared: outliers are clipped to the range of the others"
        advice = f"to prove a difference, declare it: {range_advice(status, settings)}"
        yield Check("rewards", OK, told, advice)


def _of_rewards(
    counts: Mapping[str, int], found: Lately, store: Store, settings: Settings
) -> Iterator[Check]:
    for name in REFUSED:
        if counts.get(name):
            advice = f"see {name} in docs/reference/counters.md"
            yield Check(
                "rewards", WARN, f"{name}: {number(counts[name])}", advice, "rewards-refused"
            )
    if beyond := counts.get("left_out_reward_out_of_range"):
        told = f"{number(beyond)} rollouts were left out: a reward was outside its range"
        advice = "fix the unit of the reward, or its range in the settings"
        yield Check("rewards", WARN, told, advice, "rewards-out-of-range")
    if missed := counts.get("left_out_reward_missing"):
        lost, of = store.rewards.newest_missing(of=REWARDS)
        told = f"{number(missed)} rollouts got none before the deadline, {lost} of the newest {of}"
        advice = f"raise {deadlines(settings)}, send rewards sooner, or declare a default"
        yield Check("rewards", WARN, told, advice, "rewards-missed")
    sent = Counter(one.source for one in found.rewards if one.source not in MADE_UP)
    for source, times in sent.most_common(1):
        total = sent.total()
        if total >= FEW and times >= ONE_SHARE * total and SOMEBODY in source:
            told = f"{source} gave {number(times)} of the last {number(total)}"
            advice = "collect from more sources, or limit each with TAU_LIVE_RL_SOURCE_CAPS"
            yield Check("rewards", WARN, told, advice, "rewards-of-one")


def _of_runs(store: Store) -> Iterator[Check]:
    counts = rollouts_by_status(store)
    if not counts["completed"] and counts["open"] >= OPEN:
        found = f"{number(counts['open'])} have started and none has ended"
        advice = "use `with tau_live.run(...)`, and let processes exit normally"
        yield Check("runs", WARN, found, advice, "runs-never-end")


def _of_learner(store: Store, settings: Settings, *, now: float) -> Iterator[Check]:
    is_off = settings.learner is Learner.OFF
    if store.leases.holder(LEASE, now=now) or (not is_off and attached_processes(store, now=now)):
        return
    enough = 2 * settings.update_interval
    for point in store.rewards.ready_points():
        after = store.policies.watermark(point)
        if store.rewards.ready_count(point, after=after, limit=enough) >= enough:
            found = f"'{point}': {number(enough)} rollouts or more wait to be learned from"
            advice = (
                "run `tau-live learn`, or set TAU_LIVE_RL_LEARNER=thread"
                if is_off
                else "call tau_live.flush(timeout_s=60) before the program ends, "
                "or run `tau-live learn`"
            )
            yield Check("learner", WARN, found, advice, "nobody-learns")


def _of_clock(found: Lately, *, now: float) -> Check:
    times = [one.at for one in found.decisions] + [one.at for one in found.rewards]
    newest = max(times, default=now)
    if newest - now < AHEAD_S:
        return Check("clock", OK, "no row is dated in the future")
    told = f"the newest row is {seconds(newest - now)} ahead of this machine's clock"
    advice = "fix the clocks of the machines that write; reward deadlines depend on them"
    return Check("clock", WARN, told, advice, "clock-ahead")
