"""Everybody finds the way: kinds of pages, links, words, diagrams, and commands that exist."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tau_live import cli
from tau_live.core.records import ROLLOUT_MOVES
from tests.docs.blocks import blocks, commands, pages, prose_code
from tests.docs.conftest import ROOT

pytestmark = pytest.mark.slow

DOCS = ROOT / "docs"
INDEX = (DOCS / "index.md").read_text()
KINDS = ["Tutorials", "How-to guides", "Explanation", "Reference"]
FIRST = {
    "are new": "tutorial/your-own-agent.md",
    "are on call": "howto/runbook.md",
    "want to know how it works": "learning.md",
}
"""Who comes, and the page that is theirs."""

WORDS = (
    "host adapter run rollout attempt span decision-point option offered propensity reward "
    "trajectory policy version learner champion control arm exposure gate resource"
)
"""The words of the design."""

NOT_WORDS = {"names", "revisions", "sequences"}
"""Tables that only the store itself knows of."""

SINGULAR = {"policies": "policy", "in_service": "in service", "gate_log": "gate",
            "replies": "reply", "ready_points": "ready", "awaiting": "late reward"}  # fmt: skip
DIAGRAMS = ["way-of-the-data", "life-of-a-rollout", "arms-and-promotion", "gate"]
BY_PLUGINS = {"hello"}
"""Commands that a page adds by itself."""

ENDS = re.compile(r"\s(?:\||&&|\|\||;|>|2>|<)|\$\(|\)|$", re.MULTILINE)
SECTIONS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_the_list_of_pages_shows_the_four_kinds() -> None:
    captions = re.findall(r"^:caption: ([^:\n]+)", INDEX, re.MULTILINE)

    assert list(dict.fromkeys(captions)) == KINDS


def test_everybody_is_one_click_from_their_page() -> None:
    rows = re.findall(r"^\| \*\*([^*]+)\*\*[^|]*\| \[[^]]+\]\(([^)#]+)", INDEX, re.MULTILINE)

    assert dict(rows) == FIRST


def test_every_page_is_in_one_list() -> None:
    listed = re.findall(r"^(?:tutorial/|howto/|reference/)?[\w-]+$", INDEX, re.MULTILINE)
    there = {path.relative_to(DOCS).with_suffix("").as_posix() for path in pages(ROOT)[1:]}

    assert sorted(listed) == sorted(there - {"index"})


@pytest.mark.parametrize("page", pages(ROOT), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_link_within_the_documentation_leads_to_a_heading(page: Path) -> None:
    text = re.sub(r"^(`{3,}).*?^\1$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    links = re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)", text)

    broken = [
        f"{target}#{anchor}"
        for target, anchor in links
        if not (found := page.parent / target if target else page).exists()
        or (anchor and found.suffix == ".md" and anchor not in anchors(found))
    ]

    assert broken == []


def test_the_glossary_has_each_word_once_and_in_order() -> None:
    heads = re.findall(r"^(\S.*)\n: ", (DOCS / "glossary.md").read_text(), re.MULTILINE)

    assert heads == sorted(heads, key=str.lower)
    assert len(words()) == len(set(words()))


def test_every_word_that_is_ours_is_in_the_glossary() -> None:
    design = [word.replace("-", " ") for word in WORDS.split()]
    introduced = re.findall(
        r"(?<!\*)\*([A-Za-z][^*\n]+)\*(?!\*)", (DOCS / "concepts.md").read_text()
    )
    tables = re.findall(r"^## (\S+)$", (DOCS / "reference/schema.md").read_text(), re.MULTILINE)
    stored = [
        SINGULAR.get(name, name.removesuffix("s"))
        for name in set(tables) - NOT_WORDS
        if name in SINGULAR or "_" not in name  # others are parts of one, or views
    ]

    missing = {
        word
        for word in (*design, *introduced, *stored)
        if word.lower() not in words() and word.lower().removesuffix("s") not in words()
    }

    assert missing == set()


@pytest.mark.parametrize("name", DIAGRAMS)
def test_a_diagram_can_be_read_by_everybody_and_loads_nothing(name: str) -> None:
    drawn = (DOCS / f"_static/{name}.svg").read_text()
    shown = "".join(page.read_text() for page in pages(ROOT))

    assert re.search(r"<title id=\"title\">[^<]+</title>\s+<desc id=\"desc\">[^<]{80,}", drawn)
    assert "prefers-color-scheme: dark" in drawn
    assert re.search(rf"!\[[^]]{{60,}}\]\([^)]*{name}\.svg\)", shown)
    assert not re.findall(r"href|url\((?!#)|@import|<script", drawn)


def test_the_life_of_a_rollout_is_drawn_as_it_is() -> None:
    drawn = (DOCS / "_static/life-of-a-rollout.svg").read_text()

    moves = {(old.value, new.value) for old, all_ in ROLLOUT_MOVES.items() for new in all_}

    assert {tuple(move.split()) for move in re.findall(r'data-move="([^"]+)"', drawn)} == moves


@pytest.mark.parametrize("page", pages(ROOT), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_command_that_a_page_names_exists(page: Path) -> None:
    found = {command: wrong for command in named(page) if (wrong := missing_in(command))}

    assert found == {}


def test_the_comparison_is_dated_and_links_what_it_claims() -> None:
    page = (DOCS / "comparison.md").read_text()
    measured = (DOCS / "learning.md").read_text() + (DOCS / "performance.md").read_text()

    sections = re.split(r"^## ", page, flags=re.MULTILINE)[3:-1]

    assert re.search(r"read on 20\d\d-\d\d-\d\d", page)
    assert len(sections) > 5
    assert all("](https://" in text and "*They are better*" in text.replace("*It is", "*They are")
               for text in sections)  # fmt: skip
    figures = re.findall(r"\b0\.\d\d+\b(?!\.\d)", page)  # not versions
    assert [figure for figure in figures if figure not in measured] == []


def test_the_changelog_is_kept_as_others_keep_theirs() -> None:
    page = (DOCS / "changelog.md").read_text()

    versions = re.findall(r"^## (.+)$", page, re.MULTILINE)
    sections = re.findall(r"^### (.+)$", page, re.MULTILINE)

    form = r"Unreleased|\d+\.\d+\.\d+ - (20\d\d-\d\d-\d\d|not yet released)"
    assert [one for one in versions if not re.fullmatch(form, one)] == []
    assert set(sections) <= SECTIONS


def words() -> list[str]:
    """Return every word of the glossary."""
    heads = re.findall(r"^(\S.*)\n: ", (DOCS / "glossary.md").read_text(), re.MULTILINE)
    return [word.strip().lower() for head in heads for word in head.split(",")]


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as MyST and most forges make them."""
    headings = re.findall(r"^#{1,3} (.+)$", page.read_text(), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", re.sub(r"`", "", heading).lower()) for heading in headings)
    made = {heading.replace(" ", "-") for heading in plain}
    return made | {anchor.replace("_", "-") for anchor in made}


def named(page: Path) -> Iterator[str]:
    """Yield the commands of ours that a page tells somebody to run."""
    text = page.read_text()
    shown = [
        line
        for block in blocks(text)
        if block.language == "console"
        for line in commands(block.text)
    ]
    for line in (*shown, *prose_code(text)):
        for place in re.finditer(r"(?:^|[\s(])(tau-live(?= ).*)", line.replace("\\\n", " ")):
            yield place[1]


def option_of(known: list[click.Parameter], word: str) -> click.Option | None:
    name = word.partition("=")[0]
    options = (each for each in known if isinstance(each, click.Option))
    return next((option for option in options if name in option.opts), None)


def split(command: str) -> list[str]:
    """Return the words of the one command that is ours."""
    ours = command[: found.start()] if (found := ENDS.search(command)) else command
    try:
        return shlex.split(ours)
    except ValueError:  # a quotation that goes on where the line was cut
        return ours.split()


def missing_in(command: str) -> str:
    """Return which command or option of ours a line names that is not there; empty if none."""
    context = click.Context(cli.main, info_name="tau-live")
    group: click.Command = cli.main
    words = iter(split(command)[1:])
    for word in words:
        if word == "--":
            return ""
        if word.startswith("--"):
            option = option_of(group.get_params(context), word)
            if option is None:
                return f"{group.name} has no {word}"
            if "=" not in word and not option.is_flag:
                next(words, None)  # its value
        elif isinstance(group, click.Group) and word.isascii() and word.islower():
            below = group.get_command(context, word.partition("|")[0])
            if below is None and word not in BY_PLUGINS:
                return f"{group.name} has no command {word}"
            group = below or group
    return ""
