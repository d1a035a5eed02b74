"""Finding the proofs, running them, and keeping their figures for the page."""

import json
import os
import pkgutil
import platform
import sqlite3
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

import numpy as np

import tests.proof
from tests.proof.figures import Figure, Progress, Prove, Proven, Tier

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "docs/reliability.json"
_SUFFIX = "_proof"
_STAMP = ("date", "commit", "machine")


def names() -> list[str]:
    """Return every proof there is: modules of this package that end in ``_proof``."""
    module_names = (module.name for module in pkgutil.iter_modules(tests.proof.__path__))
    return sorted(name.removesuffix(_SUFFIX) for name in module_names if name.endswith(_SUFFIX))


def proof(name: str) -> Prove:
    """Return the function of a proof."""
    prove: Prove = import_module(f"tests.proof.{name}{_SUFFIX}").prove
    return prove


def proven(name: str, tier: Tier, progress: Progress) -> Proven:
    """Run a proof to its end."""
    began = time.monotonic()
    figures = tuple(proof(name)(tier, progress))
    return Proven(name, time.monotonic() - began, figures)


@dataclass(frozen=True, slots=True)
class Row:
    """One figure as it is kept: with where and when it was measured."""

    proof: str
    figure: Figure
    tier: str
    date: str
    commit: str
    machine: str


def keep(results: Iterable[Proven], tier: Tier) -> None:
    """Replace the kept figures of proofs."""
    before = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    stamp = {
        "tier": tier.value,
        "date": datetime.now(UTC).date().isoformat(),
        "commit": _git("rev-parse", "--short", "HEAD"),
        "machine": machine(),
    }
    for result in results:
        figures = [figure._asdict() for figure in result.figures]
        before[result.name] = {**stamp, "seconds": round(result.seconds, 1), "figures": figures}
    KEPT.write_text(json.dumps(before, indent=2, sort_keys=True) + "\n")


def kept() -> list[Row]:
    """Return all kept figures, sorted by promise and proof."""
    if not KEPT.exists():
        return []
    rows = [
        Row(name, Figure(**figure), *(entry[part] for part in ("tier", *_STAMP)))
        for name, entry in json.loads(KEPT.read_text()).items()
        for figure in entry["figures"]
    ]
    return sorted(rows, key=lambda row: (row.figure.promise, row.proof))


def figures_reference() -> str:
    """Return the kept figures as Markdown: a table for each promise, and the stamps of proofs."""
    rows = kept()
    text = ""
    for promise in sorted({row.figure.promise for row in rows}):
        table_rows = [
            (f"`{row.proof}`", row.figure.what, _shown(row.figure.found), row.figure.bound)
            for row in rows
            if row.figure.promise == promise
        ]
        text += f"\n### Promise {promise}\n\n" + _table(
            ("proof", "what", "found", "bound"), table_rows
        )
    stamps = {
        (f"`{row.proof}`", row.tier, row.date, f"`{row.commit}`", row.machine) for row in rows
    }
    return text + "\n" + _table(("proof", "tier", *_STAMP), sorted(stamps))


def _shown(found: float) -> str:
    return f"{found:,.0f}" if float(found).is_integer() else f"{found:,.3g}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def machine() -> str:
    """Return a description of this machine."""
    return (
        f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()} "
        f"{platform.release().split('-')[0]}, Python {platform.python_version()}, "
        f"SQLite {sqlite3.sqlite_version}, numpy {np.__version__}"
    )


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"
