"""The verbs with which an operator says who decides, and how much."""

from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from tau_live.core.records import Trial
from tau_live.core.settings import Settings
from tau_live.store.sqlite.store import SqliteStore
from tests.cli.conftest import Read, Run
from tests.cli.filled import version_in_service
from tests.cli.test_keys import undocumented
from tests.trialled import serve

VERBS = ["promote", "reset", "freeze", "rollback", "pin", "stop"]


def trial_of(path: Path, point: str = "model") -> Trial:
    store = SqliteStore.open(path, read_only=True)
    found = store.trials.trial(point)
    store.close()
    return found


def set_trial(path: Path, **fields: object) -> None:
    store = SqliteStore.open(path)
    found = store.trials.trial("model")
    assert store.trials.save(replace(found, revision=found.revision + 1, **fields))
    store.close()


def test_an_exposure_is_set_and_keeps_the_evidence(filled: Path, read: Read) -> None:
    before = trial_of(filled)

    found = read("policy", "exposure", "model", "25%", "--reason", "why", "--store", filled)

    assert isinstance(found, dict)
    assert (found["exposure"], found["stopped"]) == (0.25, None)
    after = trial_of(filled)
    assert (after.exposure, after.test, after.tally) == (0.25, before.test, before.tally)


def test_a_learner_that_was_stopped_starts_again_with_a_new_test(filled: Path, run: Run) -> None:
    assert run("policy", "stop", "model", "--reason", "why", "--store", filled).exit_code == 0
    halted = trial_of(filled)

    run("policy", "exposure", "model", "0.5", "--reason", "why", "--store", filled)

    started = trial_of(filled)
    assert halted.stopped is not None
    assert halted.stopped.startswith("why (")
    assert (started.stopped, started.exposure) == (None, 0.5)
    assert (started.test, started.tally) == (halted.test + 1, {})


@pytest.mark.parametrize("point", ["model", "retry"])
def test_a_point_of_hosts_is_exposed_before_the_first_run(
    tmp_path: Path, read: Read, point: str
) -> None:
    path = tmp_path / "new" / "store.sqlite"

    found = read("policy", "exposure", point, "1.0", "--reason", "why", "--store", path)

    assert isinstance(found, dict)
    assert (found["exposure"], found["version"], found["idempotent"]) == (1.0, 0, False)
    assert trial_of(path, point).exposure == 1.0
    assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("share", ["2", "-0.1", "101%", "much", "nan"])
def test_what_is_no_share_is_refused(filled: Path, run: Run, share: str) -> None:
    result = run("policy", "exposure", "model", "--reason", "why", "--store", filled, "--", share)

    assert result.exit_code == 2
    assert "expected 0 to 1, or 0% to 100%" in result.stderr
    assert trial_of(filled).exposure is None


def test_freezing_makes_what_decides_the_champion_and_puts_the_one_before_on_notice(
    filled: Path, read: Read
) -> None:
    found = read("policy", "freeze", "model", "--reason", "why", "--store", filled)

    assert isinstance(found, dict)
    after = trial_of(filled)
    assert (found["champion"], found["previous"], found["exposure"]) == (2, 1, 0.95)
    assert (after.kept, after.control) == (Settings().probation, 1)


def test_rollback_takes_back_a_champion_that_is_on_probation(filled: Path, read: Read) -> None:
    read("policy", "freeze", "model", "--reason", "why", "--store", filled)

    found = read("policy", "rollback", "model", "--reason", "why", "--store", filled)

    assert isinstance(found, dict)
    assert (found["version"], found["was"], found["champion"], found["previous"]) == (1, 2, 1, None)
    assert trial_of(filled).kept == 0


def test_rollback_goes_to_the_champion_from_a_later_version(filled: Path, run: Run) -> None:
    store = SqliteStore.open(filled)
    serve(store, Settings(store=filled), 10, parent=2)
    store.close()

    result = run("policy", "rollback", "model", "--reason", "why", "--store", filled)

    assert result.exit_code == 0
    assert version_in_service(filled) == 1
    assert trial_of(filled).champion == 1


def test_rollback_goes_from_a_champion_to_the_one_before(filled: Path, run: Run) -> None:
    set_trial(filled, champion=2, previous=1)

    run("policy", "rollback", "model", "--reason", "why", "--store", filled)

    assert version_in_service(filled) == 1
    assert (trial_of(filled).champion, trial_of(filled).previous) == (1, None)


def test_rollback_may_pin_what_it_goes_back_to(filled: Path, read: Read) -> None:
    found = read("policy", "rollback", "model", "--pin", "--reason", "why", "--store", filled)

    assert isinstance(found, dict)
    assert (found["version"], found["pinned"]) == (1, True)


def test_a_pinned_version_stays_until_it_is_unpinned_and_then_the_newest_decides(
    filled: Path, read: Read
) -> None:
    read("policy", "use", "1", "--point", "model", "--pin", "--reason", "why", "--store", filled)

    found = read("policy", "unpin", "model", "--reason", "why", "--store", filled)
    again = read("policy", "pin", "model", "--reason", "why", "--store", filled)

    assert isinstance(found, dict)
    assert isinstance(again, dict)
    assert (found["version"], found["was"], found["pinned"]) == (2, 1, False)
    assert (again["version"], again["pinned"]) == (2, True)


@pytest.mark.parametrize(
    ("before", "command", "said"),
    [
        ([], ["promote", "tools"], "point 'tools' runs the untrained policy: nothing to promote"),
        (
            [["stop", "model"]],
            ["promote", "model"],
            "the learner of 'model' is stopped: why (",
        ),
        ([], ["reset", "tools"], "point 'tools' runs the untrained policy: nothing to reset"),
        ([], ["freeze", "tools"], "point 'tools' runs the untrained policy: nothing to freeze"),
        ([], ["rollback", "tools"], "point 'tools' runs the untrained policy: nothing to go back"),
        ([], ["stop", "tols"], "no policy decides at point 'tols'; known points: 'model', "),
        ([], ["exposure", "tols", "1"], "no policy decides at point 'tols'"),
        (
            [],
            ["reset", "tools"],
            "`tau-live policy stop tools --reason ... --store STORE` lets the host",
        ),
        (
            [["stop", "model"]],
            ["promote", "model"],
            "`tau-live policy exposure model 5% --reason ... --store STORE` starts it again",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(
    filled: Path, run: Run, before: list[list[str]], command: list[str], said: str
) -> None:
    for one in before:
        run("policy", *one, "--reason", "why", "--store", filled)
    known = trial_of(filled), version_in_service(filled)

    result = run("policy", *command, "--reason", "why", "--store", filled)

    assert result.exit_code == 1
    assert said.replace("STORE", str(filled)) in result.stderr
    assert (trial_of(filled), version_in_service(filled)) == known


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["50%"], "Missing argument 'POINT', which comes before the share (see"),
        (["0.5"], "Missing argument 'POINT', which comes before the share (see"),
        (["model"], "Missing argument 'SHARE' (see"),
        ([], "Missing argument 'SHARE' (see"),
        (["model", "50"], "expected 0 to 1, or 0% to 100%, got '50'"),
        (["--point", "model", "model", "50%"], "give the decision point, once"),
    ],
)
def test_what_is_missing_is_named(words: list[str], said: str, filled: Path, run: Run) -> None:
    result = run("policy", "exposure", *words, "--reason", "why", "--store", filled)

    assert result.exit_code == 2
    assert said in " ".join(result.stderr.replace("│", "").split())


@pytest.mark.parametrize("words", [["model", "0.5%"], ["--point", "model", "0.5%"]])
def test_a_small_share_is_said_as_it_is(words: list[str], filled: Path, run: Run) -> None:
    result = run("policy", "exposure", *words, "--reason", "why", "--store", filled)

    assert result.exit_code == 0
    assert "decides 0.5%;" in result.stdout
    assert trial_of(filled).exposure == 0.005


def test_the_known_points_are_listed_as_they_are_written(filled: Path, run: Run) -> None:
    result = run("policy", "exposure", "nomodel", "50%", "--reason", "why", "--store", filled)

    assert "known points: 'model', 'params', 'pinned', 'prompt'" in result.stderr


@pytest.mark.parametrize(
    "command",
    [["promote", "model"], ["reset", "model"], ["freeze", "model"], ["pin", "model"],
     ["unpin", "model"], ["stop", "model"], ["exposure", "model", "25%"]],
)  # fmt: skip
def test_what_is_so_already_stays_so_and_is_written_down_all_the_same(
    filled: Path, read: Read, command: list[str]
) -> None:
    read("policy", *command, "--reason", "first", "--store", filled)
    known = trial_of(filled), version_in_service(filled)

    again = read("policy", *command, "--reason", "second", "--store", filled)

    assert isinstance(again, dict)
    assert again["idempotent"]
    assert (trial_of(filled), version_in_service(filled)) == known
    store = SqliteStore.open(filled, read_only=True)
    entry = store.audit.entries(limit=1)[0]
    store.close()
    assert (entry.reason, entry.details["idempotent"]) == ("second", True)


def test_promoting_lets_the_new_champion_decide_all_it_may(filled: Path, read: Read) -> None:
    set_trial(filled, exposure=0.25)

    found = read("policy", "promote", "model", "--reason", "why", "--store", filled)

    assert isinstance(found, dict)
    assert (found["champion"], found["previous"]) == (2, 1)
    assert trial_of(filled).exposure == 1.0


@pytest.mark.parametrize("share", [None, 1.0, 0.5, 0.05])
def test_rejecting_goes_back_to_the_champion_and_begins_the_test_anew_on_the_lowest_rung(
    filled: Path, read: Read, share: float | None
) -> None:
    set_trial(filled, exposure=share)
    before = trial_of(filled)

    found = read("policy", "reset", "model", "--reason", "why", "--store", filled)

    assert isinstance(found, dict)
    assert (found["version"], found["was"], found["champion"]) == (1, 2, 1)
    after = trial_of(filled)
    assert (after.exposure, after.test, after.tally) == (0.05, before.test + 1, {})


def test_rejecting_in_shadow_stays_in_shadow(filled: Path, read: Read) -> None:
    set_trial(filled, exposure=0.0)

    read("policy", "reset", "model", "--reason", "why", "--store", filled)

    assert trial_of(filled).exposure == 0.0


def test_rejecting_a_champion_on_probation_brings_the_one_before_back(
    filled: Path, read: Read
) -> None:
    read("policy", "promote", "model", "--reason", "why", "--store", filled)

    found = read("policy", "reset", "model", "--reason", "why", "--store", filled)

    assert isinstance(found, dict)
    assert (found["version"], found["champion"], found["previous"]) == (1, 1, None)


def test_a_champion_that_is_settled_is_not_rejected_and_it_is_said_what_to_do(
    filled: Path, run: Run
) -> None:
    set_trial(filled, champion=2, previous=1, kept=0)

    result = run("policy", "reset", "model", "--reason", "why", "--store", filled)

    assert result.exit_code == 1
    assert (
        "version 2 is the champion of 'model': `tau-live policy rollback model --" in result.stderr
    )
    assert version_in_service(filled) == 2


def test_a_version_whose_file_is_damaged_is_not_frozen(filled: Path, run: Run) -> None:
    next(filled.parent.rglob("*2-*.npz")).write_bytes(b"broken")

    result = run("policy", "freeze", "model", "--reason", "why", "--store", filled)

    assert result.exit_code == 1
    assert trial_of(filled).champion == 1


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_is_written_down_with_who_and_why(filled: Path, read: Read, verb: str) -> None:
    done = read("policy", verb, "model", "--reason", "why", "--store", filled)

    assert isinstance(done, dict)
    store = SqliteStore.open(filled, read_only=True)
    entry = store.audit.entries(limit=1)[0]
    store.close()
    assert (entry.action, entry.who, entry.reason) == (f"policy_{verb}", done["who"], "why")
    assert entry.details["point"] == "model"


def test_the_point_may_be_an_option_but_not_said_twice(filled: Path, run: Run) -> None:
    command = ["policy", "stop", "--point", "model", "--reason", "why", "--store", filled]

    assert run(*command, "model").exit_code == 2
    assert run(*[one for one in command if one not in ("--point", "model")]).exit_code == 2
    assert run(*command).exit_code == 0


def test_a_change_is_told_on_one_line(filled: Path, run: Run) -> None:
    result = run("policy", "freeze", "model", "--reason", "why", "--store", filled)

    assert result.stdout.startswith(
        "model: the learner is version 2, and decides 95%; the champion is version 2;"
    )


def test_the_status_tells_the_lift_with_its_interval(filled: Path, run: Run) -> None:
    result = run("status", "--all", "--store", filled, COLUMNS="200")

    assert "difference model" in result.stdout
    assert "+0.1 (at least +0.02, at most +0.2), promote" in result.stdout
    assert "8 rollouts by the learner, 2 by the control (version 1)" in result.stdout


def test_the_audit_tells_which_share_it_was_and_is(filled: Path, run: Run) -> None:
    run("policy", "exposure", "model", "25%", "--reason", "why", "--store", filled)
    run("policy", "exposure", "model", "50%", "--reason", "why", "--store", filled)

    store = SqliteStore.open(filled, read_only=True)
    details = store.audit.entries()[0].details
    store.close()
    assert (details["share_was"], details["share"]) == (0.25, 0.5)


WHY = ("--reason", "why")
ORDERS = [
    ("exposure", "model", "25%"), ("promote", "model"), ("freeze", "model"), ("reset", "model"),
    ("rollback", "model"), ("rollback", "model", "--pin"), ("pin", "model"), ("stop", "model"),
    ("use", "0", "--point", "model"), ("use", "1", "--point", "model", "--pin"),
]  # fmt: skip


def state(path: Path) -> tuple[object, ...]:
    """Return all that decides who decides, and what is known of it."""
    with closing(SqliteStore.open(path, read_only=True)) as store:
        trial, serves = store.trials.trial("model"), store.policies.in_service()["model"]
    return (
        serves.version, serves.pinned, trial.exposure, trial.champion, trial.previous, trial.kept,
        trial.stopped, trial.test, trial.evidence, trial.tally, trial.finding,
    )  # fmt: skip


@pytest.mark.parametrize("order", ORDERS, ids=" ".join)
def test_undo_restores_exactly_what_was_before_the_last_order_and_redoes_it(
    filled: Path, run: Run, read: Read, order: tuple[str, ...]
) -> None:
    store = ("--store", filled)
    set_trial(filled, exposure=0.5, champion=1, evidence={"alpha": 0.25}, tally={"seen": 7.0})
    before = state(filled)
    assert run("policy", *order, *WHY, *store).exit_code == 0
    after = state(filled)
    assert after != before

    undone = read("policy", "undo", "model", *WHY, *store)

    assert undocumented("policy undo", undone) == (set(), set())
    assert state(filled) == before
    assert run("policy", "undo", "model", *WHY, *store).exit_code == 0
    assert state(filled) == after


@pytest.mark.parametrize("order", ORDERS, ids=" ".join)
def test_undo_restores_a_champion_on_probation(
    filled: Path, run: Run, order: tuple[str, ...]
) -> None:
    store = ("--store", filled)
    set_trial(filled, champion=2, previous=1, kept=50, tally={"seen": 3.0})
    before = state(filled)
    run("policy", *order, *WHY, *store)

    run("policy", "undo", "model", *WHY, *store)

    assert state(filled) == before


def test_undo_leaves_what_updates_and_evidence_did_since(filled: Path, run: Run) -> None:
    store = ("--store", filled)
    run("policy", "exposure", "model", "25%", *WHY, *store)
    with closing(SqliteStore.open(filled)) as opened:
        serve(opened, Settings(store=filled), 10, parent=2)
    set_trial(filled, tally={"seen": 9.0}, stopped="too expensive (a process)")

    run("policy", "undo", "model", *WHY, *store)

    trial = trial_of(filled)
    assert (trial.exposure, trial.tally) == (None, {"seen": 9.0})
    assert trial.stopped == "too expensive (a process)"
    assert version_in_service(filled) == 10


def test_undo_is_refused_where_nothing_was_ordered_or_evidence_moved_the_champion(
    filled: Path, run: Run
) -> None:
    store = ("--store", filled)

    nothing = run("policy", "undo", "model", *WHY, *store)
    run("policy", "freeze", "model", *WHY, *store)
    set_trial(filled, champion=1, previous=None)
    moved = run("policy", "undo", "model", *WHY, *store)

    assert (nothing.exit_code, moved.exit_code) == (1, 1)
    assert "no command is recorded at point 'model' that could be undone" in nothing.stderr
    assert "the champion of 'model' has changed since policy_freeze" in moved.stderr


def test_rollback_after_a_mistaken_use_of_0_goes_to_the_champion_and_leaves_it_on_probation(
    filled: Path, run: Run
) -> None:
    store = ("--store", filled)
    set_trial(filled, champion=2, previous=1, kept=50)
    run("policy", "use", "0", "--point", "model", *WHY, *store)

    result = run("policy", "rollback", "model", *WHY, *store)

    assert result.exit_code == 0
    assert version_in_service(filled) == 2
    trial = trial_of(filled)
    assert (trial.champion, trial.previous, trial.kept) == (2, 1, 50)


def test_rollback_from_a_version_before_the_champion_leaves_the_champion_alone(
    filled: Path, run: Run
) -> None:
    store = ("--store", filled)
    set_trial(filled, champion=2, previous=None, kept=50)
    run("policy", "use", "1", "--point", "model", *WHY, *store)

    run("policy", "rollback", "model", *WHY, *store)

    assert version_in_service(filled) == 0
    trial = trial_of(filled)
    assert (trial.champion, trial.kept) == (2, 50)


def test_unpin_never_puts_back_a_version_that_was_rolled_back(filled: Path, run: Run) -> None:
    """As in the tutorial: rolled back, another pinned for a while, then unpinned."""
    store = ("--store", filled)
    run("policy", "rollback", "model", *WHY, *store)
    rolled_back_to = version_in_service(filled)
    run("policy", "use", "0", "--point", "model", "--pin", *WHY, *store)

    run("policy", "unpin", "model", *WHY, *store)

    assert (rolled_back_to, version_in_service(filled)) == (1, 1)


def test_unpin_puts_back_what_was_learned_since_or_what_somebody_used_again(
    filled: Path, run: Run
) -> None:
    store = ("--store", filled)
    run("policy", "rollback", "model", "--pin", *WHY, *store)
    run("policy", "use", "2", "--point", "model", *WHY, *store)
    run("policy", "use", "1", "--point", "model", "--pin", *WHY, *store)

    run("policy", "unpin", "model", *WHY, *store)

    assert version_in_service(filled) == 2
