"""Everything that there is stands in the documentation, and what stands there is."""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import tau_live
from tau_live import cli
from tau_live.cli.commands import COMMANDS
from tau_live.cli.json_keys import KEYS
from tau_live.core import events
from tau_live.core.reasons import SENTENCES, WhyNot
from tau_live.core.settings import SETTINGS
from tau_live.evidence.codes import FAULTS, REASONS
from tau_live.evidence.differences import CODES
from tests.docs.blocks import pages, prose
from tests.docs.conftest import ROOT
from tests.generated import commands_with_help, hook_functions
from tests.proof.report import names

pytestmark = pytest.mark.slow

REFERENCE = ROOT / "docs/reference"
COUNTER = re.compile(r"[a-z]+(_[a-z]+)+")
COUNTING = {"count", "_count", "add"}
UNUSED = "traces?|episodes?|samples?|bridges?|managers?|handlers?|helpers?|utils|legacy|v2"
ALLOWED = {"OpenTelemetry trace", "pluggy manager", "effective sample", "V-trace", "sqlite-utils"}
"""The words of others for what is theirs."""

PROTOCOL = {"evidence.md": "episodes?|samples?"}
"""The words of the evidence protocol, on the page of its files."""


def test_every_setting_is_described() -> None:
    page = (REFERENCE / "settings.md").read_text()

    missing = [row.variable for row in SETTINGS if f"`{row.variable}`" not in page]

    assert not missing


def test_every_command_and_option_is_described() -> None:
    page = (REFERENCE / "cli.md").read_text()

    for path, context in commands_with_help():
        assert f"# {path}\n" in page
        for option in context.command.params:
            assert all(name in page for name in option.opts if name.startswith("-"))
    assert set(COMMANDS) <= {path.split()[-1] for path, _ in commands_with_help()}


def test_every_hook_is_described_and_shown_at_work() -> None:
    reference = (REFERENCE / "hooks.md").read_text()
    at_work = (ROOT / "docs/howto/plugins.md").read_text()

    for hook in hook_functions():
        assert f"## {hook}\n" in reference
        assert f"def {hook}(" in at_work


def test_every_event_is_described() -> None:
    page = (REFERENCE / "events.md").read_text()

    assert all(f"## {kind}\n" in page for kind in events.KINDS)


def test_every_counter_is_described() -> None:
    page = (REFERENCE / "counters.md").read_text()

    found = set(counters())

    assert len(found) > 10
    assert not [name for name in found if f"`{name}`" not in page]


def test_every_reason_is_described() -> None:
    page = (REFERENCE / "reasons.md").read_text()

    assert set(SENTENCES) == set(WhyNot)
    assert all(f"| `{reason}` | {SENTENCES[reason]} |" in page for reason in WhyNot)


def test_every_public_function_is_described() -> None:
    page = (REFERENCE / "python.md").read_text()

    assert all(f"## tau_live.{name}\n" in page for name in tau_live.__all__)


def test_a_public_function_is_described_with_every_argument() -> None:
    page = (REFERENCE / "python.md").read_text()

    for name in tau_live.__all__:
        function = getattr(tau_live, name)
        if inspect.isroutine(function):
            section = page.partition(f"## tau_live.{name}\n")[2].partition("\n## ")[0]
            arguments = inspect.signature(function).parameters
            assert all(f"{argument}: " in section for argument in arguments), name


def test_every_command_with_json_has_its_keys_described() -> None:
    page = (REFERENCE / "json.md").read_text()

    assert all(f"## tau-live {command}\n" in page for command in KEYS)


def test_every_exit_code_is_described() -> None:
    page = (REFERENCE / "exit-codes.md").read_text()

    codes = re.findall(r"^  (\d+) ", cli.EXIT_CODES, re.MULTILINE)

    assert len(codes) > 3
    assert all(f"| `{code}` |" in page for code in codes)


def test_every_reason_and_code_of_evidence_is_described() -> None:
    page = (ROOT / "docs/reference/evidence.md").read_text()
    advice = (ROOT / "docs/howto/prove.md").read_text()

    assert all(f"| `{code}` | {text} |" in page for code, text in FAULTS.items())
    assert all(f"| `{code}` | {one.means} | {one.todo} |" in advice
               for code, one in REASONS.items())  # fmt: skip
    assert codes_of_faults() <= set(FAULTS)


def test_every_test_that_a_page_names_is_there() -> None:
    named = [
        match
        for page in pages(ROOT)
        if page.stem != "roadmap"  # which names tests that are to be written, and has its own check
        for match in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page.read_text())
    ]

    assert len(named) > 30
    assert not [
        f"{file}::{name}" for file, name in named if f"def {name}(" not in (ROOT / file).read_text()
    ]


def test_every_promise_names_the_proofs_that_hold_it() -> None:
    page = (ROOT / "docs/reliability.md").read_text()
    lines = re.findall(r"^(\d)\. \*\*.*\*Held by\*(.*)$", page, re.MULTILINE)
    named = {int(number): set(re.findall(r"`([^`]+)`", text)) for number, text in lines}
    paths = {name for those in named.values() for name in those if "/" in name}

    assert sorted(named) == list(range(1, 9))
    assert {number: those - paths for number, those in named.items()} == promised()
    assert all([*ROOT.glob(path)] for path in paths)


@pytest.mark.parametrize("page", pages(ROOT), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_uses_our_words(page: Path) -> None:
    text = prose(page.read_text())
    for phrase in ALLOWED:
        text = text.replace(phrase, "")
    if page.name in PROTOCOL:
        text = re.sub(rf"\b({PROTOCOL[page.name]})\b", "", text, flags=re.IGNORECASE)

    assert not re.findall(rf"\b({UNUSED})\b", text, re.IGNORECASE)


def test_links_of_the_readme_lead_somewhere() -> None:
    for file in (ROOT / "README.md", ROOT / "hooks/README.md"):
        targets = re.findall(r"\]\(([^)#]+)[^)]*\)", file.read_text())
        assert not [target for target in targets if not (file.parent / target).exists()]


def promised() -> dict[int, set[str]]:
    """Return the proofs that have a figure for each promise."""
    found: dict[int, set[str]] = {}
    for proof in names():
        source = (ROOT / f"tests/proof/{proof}_proof.py").read_text()
        for number in re.findall(r"\bFigure\(\s*(\d)", source):
            found.setdefault(int(number), set()).add(proof)
    return found


def codes_of_faults() -> set[str]:
    """Return every code with which the code reports a fault of an artifact."""
    trees = [ast.parse(file.read_text()) for file in (ROOT / "tau_live/evidence").rglob("*.py")]
    calls = [
        node.args[0]
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Fault" and node.args
    ]
    found = [node.value for call in calls for node in ast.walk(call)
             if isinstance(node, ast.Constant)]  # fmt: skip
    return {str(one) for one in found} | {code for _, code in CODES}


def counters() -> Iterator[str]:
    """Yield the name of every counter that the code counts with."""
    for file in (ROOT / "tau_live").rglob("*.py"):
        yield from _counted(ast.parse(file.read_text()))


def _counted(tree: ast.AST) -> Iterator[str]:
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call):
            continue
        function = call.func
        name = function.attr if isinstance(function, ast.Attribute) else ""
        name = function.id if isinstance(function, ast.Name) else name
        if name not in COUNTING:
            continue
        for argument in call.args:
            said = argument.keys if isinstance(argument, ast.Dict) else [argument]
            for one in said:
                if isinstance(one, ast.Constant) and COUNTER.fullmatch(str(one.value)):
                    yield str(one.value)
