"""Cases of what reads: recordings, logs, hosts' lines, settings, checkpoints, features."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from tau_live.core.errors import TauLiveError
from tau_live.core.processes import parent_of
from tau_live.core.redaction import Redactor
from tau_live.core.sanitize import Limits
from tau_live.core.settings import SETTINGS, Settings
from tau_live.core.switch import switched_on
from tau_live.decisions.checkpoints import Checkpoint
from tau_live.record.recording import lines, read
from tau_live.rl.features import encode, pack, unpack
from tau_live.runtime.importing.otel import Traces
from tau_live.runtime.importing.rows import BadRow, FieldError, json_rows, table_rows
from tau_live.runtime.importing.runs import Reader, Records, Runs
from tau_live.store.checkpoints import name_of
from tau_live_hooks.tau import TauStream
from tests.decisions.paths import load, load_some, save
from tests.proof.inputs_lines import (
    CSV,
    OTEL,
    ROWS,
    TAU,
    TOKENS,
    TOML,
    lines_of,
    recordings,
    spoiled,
)
from tests.proof.inputs_tally import Tally

REFUSED = (TauLiveError, FieldError)
"""The errors that a reader may raise, which the command that reads prints."""

_RECORDS = Records(width=4_096, limits=Limits(), redactor=Redactor(), reward="reward")


class Readers:
    """Makes one case after the other.

    Args:
        tally: Counts their faults.
        seed: With the number of a case it determines everything about it.
        folder: The folder for files.
    """

    def __init__(self, tally: Tally, seed: int, folder: Path) -> None:
        self._tally = tally
        self._seed = seed
        self._folder = folder
        self.read = self.refused = 0
        self._kinds: Sequence[tuple[str, float, Callable[[random.Random], object]]] = (
            ("recording", 30, self._recording),
            ("rows of JSON", 18, self._rows),
            ("rows of a table", 8, self._table),
            ("spans", 12, self._spans),
            ("the reference's lines", 14, self._reference),
            ("environment", 8, self._environment),
            ("TOML", 2, self._toml),
            ("checkpoint", 2, self._checkpoint),
            ("features", 6, self._features),
        )
        self._weights = [weight for _, weight, _ in self._kinds]

    def make_case(self, number: int) -> None:
        """Make one case: something good, spoiled, and read."""
        rng = random.Random(f"{self._seed}:{number}")
        name, _, case = rng.choices(self._kinds, self._weights)[0]
        self._tally.case = f"--only {number} {name}"
        self._tally.timed(self._allowed, case, rng)

    def _allowed(self, case: Callable[[random.Random], object], rng: random.Random) -> None:
        try:
            case(rng)
            self.read += 1
        except REFUSED:
            self.refused += 1

    def _some(self, rng: random.Random, whole: Sequence[bytes], number: int = 3) -> list[bytes]:
        at = rng.randrange(max(1, len(whole) - number + 1))
        chosen = [*whole[at : at + number]]
        place = rng.randrange(len(chosen))
        chosen[place] = spoiled(rng, chosen[place])
        if rng.random() < 0.2:
            rng.shuffle(chosen)
        return chosen

    def _recording(self, rng: random.Random) -> None:
        content = b"\n".join(self._some(rng, recordings(), 2))
        rows = [*read(BytesIO(content))]
        self._tally.check(len(rows) <= content.count(b"\n") + 1, "odd", "more than there were")

    def _rows(self, rng: random.Random) -> None:
        content = b"\n".join(self._some(rng, lines_of(ROWS)))
        self._logged(json_rows(lines(BytesIO(content))), cells=False)

    def _table(self, rng: random.Random) -> None:
        content = b"\n".join([*CSV[:1], *self._some(rng, CSV)])
        self._logged(table_rows(lines(BytesIO(content))), cells=True)

    def _logged(self, rows: Iterator[Any], *, cells: bool) -> None:
        reader = Reader({}, point="model", offered=(), cells=cells)
        runs = Runs("s", default_at=1.0, records=_RECORDS)
        for row in rows:
            if isinstance(row, BadRow):
                continue
            try:
                logged = reader.decision(row.row)
            except FieldError:
                continue
            for _ in runs.take([(logged, row.line)]):
                pass
        for _ in runs.finish():
            pass

    def _spans(self, rng: random.Random) -> None:
        traces = Traces(_RECORDS, reward="reward")
        for row in json_rows(lines(BytesIO(spoiled(rng, lines_of([OTEL])[0])))):
            if not isinstance(row, BadRow):
                for _ in traces.events(row.row):
                    pass
        for _ in traces.finish():
            pass

    def _reference(self, rng: random.Random) -> None:
        stream = TauStream("s", clock=lambda: 1.0)
        for line in self._some(rng, lines_of(TAU), 5):
            stream.events(line)
        stream.end()

    def _environment(self, rng: random.Random) -> None:
        given = {rng.choice(SETTINGS).variable: _text(rng) for _ in range(2)}
        given |= {"TAU_LIVE_RL": _text(rng), "TAU_LIVE_PARENT": _text(rng)}
        given.pop("TAU_LIVE_RL_CONFIG", None)
        switched_on(given)
        parent_of(given)
        loaded = Settings.from_env(given)
        for _ in loaded.rows():
            pass

    def _toml(self, rng: random.Random) -> None:
        file = self._folder / "some.toml"
        file.write_bytes(b"\n".join(spoiled(rng, TOML).splitlines()))
        Settings.from_env({"TAU_LIVE_RL_CONFIG": str(file)})

    def _checkpoint(self, rng: random.Random) -> None:
        path = self._folder / name_of(1)
        content = _saved(self._folder)
        at = rng.choice((0, len(content) - 500, rng.randrange(len(content))))
        path.write_bytes(content[:at] + spoiled(rng, content[at : at + 500]) + content[at + 500 :])
        for reading in (load, lambda path: load_some(path, ["x"])):
            with suppress(*REFUSED):
                reading(path)

    def _features(self, rng: random.Random) -> None:
        packed = pack(encode({"a": 1.0, "b": "some words"}, [("x", None), ("y", {"f": 2.0})]))
        try:
            unpack(spoiled(rng, packed))
        except ValueError:
            self.refused += 1


def _text(rng: random.Random) -> str:
    """Return a text that an environment can hold: without NULs, maybe with invalid UTF-8."""
    token = rng.choice((*TOKENS, b"1", b"0.5", b"[0, 1]", b'{"a": {}}', b"{ a = 1 }", b"none"))
    raw = spoiled(rng, token) if rng.random() < 0.7 else token
    return raw.replace(b"\0", b"").decode("utf-8", "surrogateescape")


@lru_cache(maxsize=1)
def _saved(folder: Path) -> bytes:
    saved = save(
        folder,
        Checkpoint(
            version=1, point="p", parent=0, parent_sha256="",
            arrays={"x": np.zeros(8), "y": np.arange(4)},
        ),
    )  # fmt: skip
    return saved.read_bytes()


def reader_cases(tally: Tally, seed: int, cases: range, folder: Path) -> Mapping[str, object]:
    """Make cases of readers; return how many were read and refused."""
    readers = Readers(tally, seed, folder)
    for number in islice(cases, None):
        readers.make_case(number)
    return {"read": readers.read, "refused": readers.refused}
