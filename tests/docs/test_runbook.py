"""Whoever is woken finds the word that woke them in the runbook, and its commands work."""

import ast
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from tau_live import cli
from tau_live.core import errors
from tau_live.core.gate import HoldReason
from tau_live.core.reasons import CRITIC_ONLY, LEFT_OUT, WhyNot
from tau_live.core.records import Reason
from tau_live.learn import monitoring
from tau_live.operate.access import Ruling
from tau_live.operate.alert_rules import AlertKind
from tau_live.rl.verdict import Verdict
from tests.cli.filled import CHILD, fill
from tests.docs.blocks import prose_code
from tests.docs.conftest import ROOT
from tests.docs.test_complete import counters

pytestmark = pytest.mark.slow

PAGE = (ROOT / "docs/howto/runbook.md").read_text()
SHAPE = ["means", "look", "do", "page"]
FAMILIES = {LEFT_OUT, CRITIC_ONLY, "events_refused_"}
"""Counters whose name goes on with what they count."""

LEVELS = {"warning", "error"}
COMMAND = re.compile(r"tau-live .+ .+|tau-live [a-z-]+")


def test_every_entry_has_one_shape() -> None:
    entries = {**section("Alerts"), **section("Why the gate holds")}
    entries |= section("When the store fails")

    shapes = {
        name: re.findall(r"^(\w+)\n: \S", text, re.MULTILINE) for name, text in entries.items()
    }

    assert len(entries) > 25
    assert {name: found for name, found in shapes.items() if found != SHAPE} == {}


def test_every_alert_has_an_entry() -> None:
    assert section("Alerts").keys() == {kind.value for kind in AlertKind}


def test_every_reason_for_which_the_gate_holds_has_an_entry() -> None:
    reasons = {reason.value for reason in (*HoldReason, *monitoring.Reason)}

    assert section("Why the gate holds").keys() == reasons


def test_every_trouble_with_the_store_has_an_entry() -> None:
    kinds: list[type[errors.StoreError]] = [errors.StoreVersionError, errors.StoreUnavailableError]
    known = errors.StoreUnavailableError.__subclasses__()
    kinds += [kind for kind in known if kind.__module__ == errors.__name__]

    assert section("When the store fails").keys() == {kind.__name__ for kind in kinds}


@pytest.mark.parametrize(
    ("heading", "codes"),
    [
        ("Why something is not learned from", {reason.value for reason in WhyNot}),
        ("What the evidence says", {verdict.value for verdict in Verdict}),
        ("How runs end", {reason.value for reason in Reason}),
        ("Refused, or allowed, by the access file", {ruling.value for ruling in Ruling}),
        ("Exit codes", set(re.findall(r"^  (\d+) ", cli.EXIT_CODES, re.MULTILINE))),
    ],
)
def test_every_code_has_a_row(heading: str, codes: set[str]) -> None:
    assert codes - rows(heading) == set()


def test_every_counter_has_a_row_and_every_row_a_counter() -> None:
    found = set(counters())

    named = rows("Counters")

    assert found - named - rows("Alerts that were not delivered") == set()
    documented = (ROOT / "docs/reference/counters.md").read_text()
    assert {name for name in named - FAMILIES if f"`{name}`" not in documented} == set()


def test_every_warning_of_the_log_has_a_row_and_every_row_a_warning() -> None:
    said = set(warnings())

    assert len(said) > 30
    assert rows("Log lines") == said - rows("Alerts that were not delivered")


def test_what_skips_an_update_is_what_the_code_says() -> None:
    source = "".join(path.read_text() for path in (ROOT / "tau_live").rglob("*.py"))
    skips = re.findall(
        r"^\| `([a-z ,]+)` \|", text_of("Why something is not learned from"), re.MULTILINE
    )

    assert len(skips) > 5
    assert [why for why in skips if f'"{why}"' not in source] == []


def test_every_command_of_the_runbook_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fill(tmp_path / "filled/store.sqlite")
    named = sorted({code for code in prose_code(PAGE) if COMMAND.fullmatch(code)})

    said = {command: tried(command, tmp_path) for command in named}

    assert len(named) > 25
    assert {command: why for command, why in said.items() if why} == {}


def test_counters_are_where_the_runbook_says(tmp_path: Path) -> None:
    store = tmp_path / "store.sqlite"
    fill(store)
    command = re.findall(r"`(tau-live [^`]+)` shows", text_of("Counters"))[0]

    done = CliRunner().invoke(
        cli.main, shlex.split(command)[1:], env={"TAU_LIVE_RL_STORE": str(store)}
    )

    assert "duplicate_spans" in done.output


def tried(command: str, folder: Path) -> str:
    """Return what is wrong with a command on a store with one of everything; empty if nothing."""
    shutil.rmtree(folder / "live", ignore_errors=True)
    shutil.copytree(folder / "filled", folder / "live")
    words = command.replace("ROLLOUT", CHILD).replace("POINT", "model").replace("NUMBER", "1")
    store = str(folder / "live/store.sqlite")

    done = CliRunner().invoke(cli.main, shlex.split(words)[1:], env={"TAU_LIVE_RL_STORE": store})

    if done.exit_code == 2 or not isinstance(done.exception, SystemExit | None):
        return f"{done.exit_code}: {done.output}{done.exception!r}"
    return ""


def text_of(heading: str) -> str:
    """Return what stands below a heading of the second level."""
    return re.split(r"^## ", PAGE.partition(f"\n## {heading}\n")[2], flags=re.MULTILINE)[0]


def section(heading: str) -> dict[str, str]:
    """Return the entries below a heading, by their names."""
    parts = re.split(r"^### (.+)\n", text_of(heading), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def rows(heading: str) -> set[str]:
    """Return the codes in the first column of the tables below a heading."""
    lines = re.findall(r"^\| (`[^|]+`) \|", text_of(heading), re.MULTILINE)
    return {code for line in lines for code in re.findall(r"`([^`]+)`", line)}


def warnings() -> Iterator[str]:
    """Yield the name of every line that the code logs as a warning or an error."""
    for folder in ("tau_live", "hooks"):
        for path in (ROOT / folder).rglob("*.py"):
            for call in ast.walk(ast.parse(path.read_text())):
                if isinstance(call, ast.Call) and _is_warning(call.func) and call.args:
                    yield from _names(call.args[0])
                elif isinstance(call, ast.Constant) and isinstance(call.value, str):
                    yield from re.findall(r"^event='(\w+)'", call.value)  # a line made by hand


def _is_warning(function: ast.expr) -> bool:
    """Say whether a call of it logs, also by a module's own ``_log``, which no host can break."""
    if isinstance(function, ast.Name):
        return function.id in {"_log", "log_failure"}
    return isinstance(function, ast.Attribute) and function.attr in LEVELS


def _names(argument: ast.expr) -> Iterator[str]:
    for part in ast.walk(argument):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield from re.findall(r"^[a-z]+(?:_[a-z]+)+", part.value)
