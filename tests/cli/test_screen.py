"""The screen of ``status`` and ``top``: four answers in order, in any state, on any terminal."""

import re
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from io import StringIO
from pathlib import Path
from shutil import copytree

import pytest
from msgspec import structs
from rich.console import Console

import tau_live
from tau_live.cli.status import heading, screen_of
from tau_live.core.records import StoredFinding, Trial
from tau_live.core.settings import Settings
from tau_live.operate.report.facts import Answer
from tau_live.operate.report.report import report_facts
from tau_live.operate.report.summary import Glance, glance_of
from tau_live.store.sqlite.store import SqliteStore
from tests.cli.conftest import Run
from tests.cli.filled import hold

QUESTIONS = ["Is it on?", "Is it healthy?", "Is it learning?", "What next?"]
TERMINAL = 23
"""Lines of a terminal of 24, without the shell's own."""


def seen(path: Path, *, enabled: bool = True) -> Glance:
    with closing(SqliteStore.open(path, read_only=True)) as store:
        return glance_of(store, Settings(store=path), now=1e9, enabled=enabled)


def drawn(glance: Glance, *, width: int, height: int | None = None) -> list[str]:
    console = Console(file=StringIO(), width=width, color_system=None)
    with console.capture() as capture:
        console.print(screen_of(glance, console, height=height))
    return [line.rstrip() for line in capture.get().splitlines()]


@pytest.fixture
def learning(lived: Path, tmp_path: Path) -> Path:
    """The path of a store of its own that has learned."""
    copytree(lived.parent, tmp_path / "learning")
    return tmp_path / "learning" / lived.name


def _empty(path: Path, run: Run) -> None:
    SqliteStore.open(path).close()


def _new(path: Path, run: Run) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TAU_LIVE_RL", "1")
        tau_live.detach()
        tau_live.attach(Settings(store=path))
        for key in range(3):
            with tau_live.run("triage", key=key) as one:
                one.decide("model", ["a", "b"], default="a")
                one.reward(1.0)
        assert tau_live.flush(30)
        tau_live.detach()


def _held(path: Path, run: Run) -> None:
    hold(path)


def _dropping(path: Path, run: Run) -> None:
    with closing(SqliteStore.open(path)) as store:
        store.counters.add({f"dropped_because_{n}_{'x' * 30}": 1000 - n for n in range(9)})


def _rolled_back(path: Path, run: Run) -> None:
    reason = ["--reason", "answers got too short"]
    assert run("policy", "rollback", "model", *reason, "--store", path).exit_code == 0


def _killed(path: Path, run: Run) -> None:
    assert run("kill", "--reason", "customers see nonsense", "--store", path).exit_code == 0


def _paused(path: Path, run: Run) -> None:
    assert run("pause", "learning", "--reason", "load test", "--store", path).exit_code == 0


def _crowded(path: Path, run: Run) -> None:
    """Many points with names that are too long for any line, and a reason that is too."""
    _held(path, run)
    with closing(SqliteStore.open(path)) as store:
        for n in range(40):
            store.trials.save(Trial(point=f"{n}-{'long ' * 60}", revision=1))
        row = store.gate.load()
        store.gate.save(replace(row, detail="word " * 400, revision=row.revision + 1), entry=None)


BEGINNING: dict[str, Callable[[Path, Run], None]] = {"empty": _empty, "new": _new}
LATER: dict[str, Callable[[Path, Run], None]] = {
    "learning": lambda path, run: None,
    "held": _held,
    "dropping": _dropping,
    "rolled back": _rolled_back,
    "killed": _killed,
    "paused": _paused,
    "crowded": _crowded,
}
STATES = [*BEGINNING, *LATER]


@pytest.fixture
def state(request: pytest.FixtureRequest, learning: Path, tmp_path: Path, run: Run) -> Path:
    """The path of a store in the state that is asked for."""
    if request.param in BEGINNING:
        path = tmp_path / "begun" / "store.sqlite"
        BEGINNING[request.param](path, run)
        return path
    LATER[request.param](learning, run)
    return learning


@pytest.mark.parametrize("state", STATES, indirect=True)
def test_it_has_room_in_a_usual_terminal_and_answers_in_order(state: Path) -> None:
    lines = drawn(seen(state), width=80, height=TERMINAL)

    asked = [one for line in lines for one in QUESTIONS if line.startswith(one)]
    assert asked == QUESTIONS
    assert len(lines) <= TERMINAL
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("state", [one for one in STATES if one != "crowded"], indirect=True)
@pytest.mark.parametrize("width", [40, 80, 120])
def test_no_word_is_broken_at_any_width(state: Path, width: int) -> None:
    glance = seen(state)

    lines = drawn(glance, width=width)

    words = {word for line in lines for word in line.split()}
    assert max(map(len, lines)) <= width
    assert {*glance.summary.on.sentence.split(), *_advice(glance).split()} <= words


@pytest.mark.parametrize(
    ("state", "command"),
    [
        ("empty", "TAU_LIVE_RL=1 tau-live demo"),
        ("held", 'tau-live gate reset --reason "..."'),
        ("dropping", "tau-live status --all"),
        ("killed", 'tau-live unkill --reason "..."'),
        ("paused", 'tau-live resume learning --reason "..."'),
    ],
    indirect=["state"],
)
def test_what_to_do_next_is_one_sentence_with_its_command(state: Path, command: str) -> None:
    advice = seen(state).summary.next[0]

    assert f"`{command}`" in advice
    assert "\n" not in advice


def test_what_was_rolled_back_is_said_with_who_and_why(learning: Path, run: Run) -> None:
    _rolled_back(learning, run)

    lines = drawn(seen(learning), width=400)

    (line,) = [one for one in lines if "last change" in one]
    assert "at model: policy rollback: answers got too short (" in line


def test_the_curve_shows_each_stretch_with_its_interval(learning: Path) -> None:
    glance = seen(learning)

    lines = drawn(glance, width=80)

    rows = [line.partition("│")[2] for line in lines if "│" in line]
    first, last = (one.reward for one in (glance.stretches[0], glance.stretches[-1]))
    assert len(rows) == 4
    assert "".join(rows).count("█") == 4 * len(glance.stretches)
    assert "░" in "".join(rows)
    (ends,) = [line for line in lines if "95 %" in line]
    assert f"first {first.mean:.3g} ({first.lower:.3g} to {first.upper:.3g})" in ends
    assert f"latest {last.mean:.3g} ({last.lower:.3g} to {last.upper:.3g})" in ends


def test_a_low_terminal_keeps_the_answers_and_leaves_out_the_curve(learning: Path) -> None:
    lines = drawn(seen(learning), width=80, height=12)

    assert [any(line.startswith(one) for line in lines) for one in QUESTIONS] == [True] * 4
    assert not any("│" in line for line in lines)


def test_where_all_is_well_one_line_says_so(learning: Path) -> None:
    glance = seen(learning)
    well = Answer(state="good", answer="yes", sentence="The gate passes; nothing was dropped.")
    summary = replace(glance.summary, healthy=well, next=["Nothing to do."])

    lines = drawn(replace(glance, summary=summary), width=80)

    assert "Is it healthy?   yes  The gate passes; nothing was dropped." in lines
    assert not any(line.startswith("  gate") for line in lines)
    assert lines[-1] == "What next?       Nothing to do."


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_a_long_path_keeps_its_end(width: int) -> None:
    path = f"/srv/{'agents/' * 12}store.sqlite"

    told = heading(path, at=1e9, width=width).plain

    assert len(told) <= width
    assert told.startswith("tau-live · ")
    assert "agents/store.sqlite" in told


@pytest.mark.parametrize(
    ("kept", "expected"),
    [
        pytest.param(0, "proven better, but not yet enough for a promotion"),
        pytest.param(5, "over the host, proven better", id="what is promoted is on probation"),
    ],
)
def test_a_lift_above_nothing_is_never_called_unproven(
    kept: int, expected: str, learning: Path
) -> None:
    difference: dict[str, float | None] = {"estimate": 0.2, "lower": 0.1, "upper": 0.3}
    finding: StoredFinding = {"verdict": "wait", "difference": difference, "cost": difference}
    with closing(SqliteStore.open(learning)) as store:
        trial = Trial(point="odd", exposure=0.5, finding=finding, kept=kept, revision=1)
        store.trials.save(structs.replace(trial, tally={"learner": 1e6}))

    told = "\n".join(drawn(seen(learning), width=200))

    assert "odd: +0.2 (+0.1 to +0.3) over the host" in told
    assert expected in told
    assert "odd: not proven" not in told


def test_what_looks_like_markup_or_turns_text_around_is_shown_as_it_is(learning: Path) -> None:
    name = "[bold red]x[/] \x1b[2J\u202e\n"
    with closing(SqliteStore.open(learning)) as store:
        store.trials.save(Trial(point=name, tally={"learner": 1e6}, revision=1))

    told = "\n".join(drawn(seen(learning), width=200))

    assert "[bold red]x[/] \\x1b[2J\\u202e\\n: untrained" in told
    assert all(character.isprintable() or character == "\n" for character in told)


def test_it_says_what_the_report_says(lived: Path) -> None:
    with closing(SqliteStore.open(lived, read_only=True)) as store:
        facts = report_facts(store, Settings(store=lived), now=1e9, enabled=True)

    glance = seen(lived)

    assert glance.summary == facts.summary
    assert glance.drops == facts.drops
    assert glance.latest == facts.marks[-1]
    assert [one.reward for one in glance.stretches] == [one.reward for one in facts.stretches]


def _advice(glance: Glance) -> str:
    """Return what is advised as the screen says it: a command is copied without a stop."""
    return re.sub(r"`\.$", "", glance.summary.next[0]).replace("`", "")
