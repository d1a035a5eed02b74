"""The fenced code blocks of a Markdown page, and what their fences say about them."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FENCE = re.compile(r"^(`{3,}|~{3,}|:{3,})(.*)$")


class Block(NamedTuple):
    """One fenced code block.

    Attributes:
        line: The line of its opening fence, from 1.
        language: What it is written in; empty where the fence does not say.
        words: What the fence says besides: ``no-run``, ``file=agent.py``, ``exit=3``, ``output``.
        text: What stands between the fences.
    """

    line: int
    language: str
    words: dict[str, str]
    text: str

    @property
    def runs(self) -> bool:
        """Whether a page's test executes it."""
        return self.language in {"python", "console"} and "no-run" not in self.words


def blocks(page: str) -> Iterator[Block]:
    """Yield the code blocks of a page in order."""
    lines = iter(enumerate(page.splitlines(), start=1))
    for number, line in lines:
        found = FENCE.match(line)
        if found is None:
            continue
        body = []
        for _, inner in lines:
            if inner.strip() == found[1]:
                break
            body.append(inner)
        language, *said = found[2].split() or [""]
        words = dict(word.partition("=")[::2] for word in said)
        yield Block(number, language, words, "".join(f"{inner}\n" for inner in body))


def commands(console: str) -> list[str]:
    """Return the commands of a console block: what follows ``$ ``, goes on behind a backslash."""
    found: list[str] = []
    going_on = False
    for line in console.splitlines():
        if line.startswith("$ "):
            found.append(line[2:])
        elif going_on:
            found[-1] += "\n" + line
        else:
            continue
        going_on = line.endswith("\\")
    return found


def printed(console: str) -> str:
    """Return what a console block shows besides its commands."""
    said = "\n".join(commands(console)).splitlines()
    lines = (line.removeprefix("$ ") for line in console.splitlines())
    return "".join(f"{line}\n" for line in lines if line not in said)


def prose(page: str) -> str:
    """Return a page without its code: no blocks, nothing in backticks, no link targets."""
    without = re.sub(r"^(`{3,})[^\n]*\n.*?^\1$", "", page, flags=re.MULTILINE | re.DOTALL)
    without = re.sub(r"(`+).*?\1", "", without)
    return re.sub(r"\]\([^)]*\)", "]", without)


def prose_code(page: str) -> list[str]:
    """Return what stands in backticks in a page's text, blocks left out."""
    without = re.sub(r"^(`{3,})[^\n]*\n.*?^\1$", "", page, flags=re.MULTILINE | re.DOTALL)
    return [found[1].strip() for found in re.findall(r"(`+)(.+?)\1", without)]


def pages(root: Path) -> list[Path]:
    """Return every page of the documentation, README first."""
    return [
        root / "README.md",
        *sorted(p for p in (root / "docs").rglob("*.md") if "_build" not in p.parts),
    ]
