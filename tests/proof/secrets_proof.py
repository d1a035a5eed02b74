"""Secrets of every kind, however hidden, are found; ordinary text is not; nothing reaches disk."""

import json
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

from tau_live.core.events import Event
from tau_live.core.redaction import Redactor
from tests.proof.benign import benign, lists_of
from tests.proof.figures import Figure, Progress, Tier
from tests.proof.planted import FORMS, KINDS, TOLD_BY_WORDS, WHOLE, Secret, is_left, pieces

ROOT = Path(__file__).parents[2]
SEED = 20
EACH: Mapping[Tier, int] = {Tier.QUICK: 3, Tier.LONG: 200}
BENIGN: Mapping[Tier, int] = {Tier.QUICK: 4_000, Tier.LONG: 60_000}
READS = (
    ("status", "--json"), ("status",), ("rollouts", "--json"), ("export",), ("updates", "--json"),
    ("gate", "show", "--json"), ("doctor",), ("config",), ("policy", "--json"),
)  # fmt: skip

CALLS = """
import json, sys
from click.testing import CliRunner
from tau_live.cli import main
for call in json.loads(sys.argv[1]):
    sys.stdout.write(CliRunner().invoke(main, call).output)
"""


def prove(tier: Tier, progress: Progress) -> Iterator[Figure]:
    """Plant, look, and count."""
    progress(0, 4)
    yield from _recall(tier)
    progress(1, 4)
    yield from _false_alarms(tier)
    progress(3, 4)
    yield from _nowhere(tier)
    progress(4, 4)


def _recall(tier: Tier) -> Iterator[Figure]:
    rng = random.Random(SEED)
    redactor = Redactor("redacted")
    planted: Counter[str] = Counter()
    left: Counter[str] = Counter()
    for form, hide in FORMS.items():
        for kind, draw in KINDS.items():
            if form in WHOLE and kind in TOLD_BY_WORDS:
                continue
            for _ in range(EACH[tier]):
                hidden = hide(draw(rng), rng)
                event = Event(event="x", host="h", run_id="r", at=1.0, raw={"v": hidden.value})
                kept = json.dumps(redactor.redact(event).raw, ensure_ascii=False)
                planted[form] += 1
                left[form] += is_left(hidden, kept)
    yield Figure(7, "kinds of secrets that were planted", len(KINDS), at_least=25)
    yield Figure(7, "secrets planted, drawn at random", planted.total())
    percent = 100.0 * (1.0 - left.total() / planted.total())
    yield Figure(7, "secrets found, in percent", percent, at_least=99.0)
    for form in FORMS:
        share = 100.0 * (1.0 - left[form] / planted[form])
        yield Figure(7, f"of those hidden as: {form}", share, at_least=97.0)


def _false_alarms(tier: Tier) -> Iterator[Figure]:
    rng = random.Random(SEED)
    redactor = Redactor("redacted")
    texts = benign(BENIGN[tier], rng)
    changed = sum(redactor.scrub(text) != text for text in texts)
    lists = list(islice(lists_of(rng), BENIGN[tier] // 10))
    for strings in lists:
        event = Event(event="x", host="h", run_id="r", at=1.0, raw={"v": strings})
        changed += redactor.redact(event) != event
    count = len(texts) + len(lists)
    yield Figure(7, "pieces of ordinary text, real code and records", count)
    yield Figure(7, "of which something was taken for a secret, in percent",
                 100.0 * changed / count, at_most=0.5)  # fmt: skip


def _nowhere(tier: Tier) -> Iterator[Figure]:
    """Let a process live on secrets, and look for them in every byte that it left."""
    rng = random.Random(SEED + 1)
    secrets = [draw(rng) for _ in range(1 + 4 * (tier is Tier.LONG)) for draw in KINDS.values()]
    rng.shuffle(secrets)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        outputs = _lived(folder, secrets)
        outputs |= _read_out(folder)
        files = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    hits = _hits(secrets, {**{str(p): b for p, b in files.items()}, **outputs})
    size = sum(map(len, [*files.values(), *outputs.values()]))
    yield Figure(7, "bytes looked at: database, WAL, recording, reports, logs, output", size,
                 at_least=100_000)  # fmt: skip
    yield Figure(7, "secrets handed over in a whole life", len(secrets), at_least=25)
    yield Figure(7, "secrets found again in any of these bytes", len(hits), at_most=0)


def _lived(folder: Path, secrets: list[Secret]) -> dict[str, bytes]:
    """Live; return what was printed, and the files as they were while it still lived."""
    command = [sys.executable, "-m", "tests.proof.secret_life"]
    log = folder.with_name(f"{folder.name}.log")
    with log.open("w+b") as errors, subprocess.Popen(
        command, cwd=ROOT, env=_environ(folder), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=errors,
    ) as process:  # fmt: skip
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("a pipe was asked for")
        process.stdin.write(json.dumps([secret.text for secret in secrets]).encode() + b"\n")
        process.stdin.flush()
        printed = process.stdout.readline() + process.stdout.readline()
        alive = {f"alive {p}": p.read_bytes() for p in folder.rglob("*") if p.is_file()}
        process.stdin.write(b"end\n")
        process.stdin.close()
        printed += process.stdout.read()
        process.wait(60)
        errors.seek(0)
        outputs = {"stdout": printed, "stderr": errors.read(), **alive}
    log.unlink()
    if b"flushed True\nstored\n" not in printed or process.returncode:
        raise RuntimeError(f"the life ended early: {printed!r} {outputs['stderr'][-2000:]!r}")
    return outputs


def _read_out(folder: Path) -> dict[str, bytes]:
    """Return the output of every command that reads the store."""
    rollouts = json.loads(_output_of(folder, [("rollouts", "--json")]))["rollouts"]
    id_, again = rollouts[0]["rollout_id"], str(folder / "again.sqlite")
    calls = [
        *READS,
        ("show", id_), ("show", id_, "--json"), ("why", f"{id_}:attempt-1:decision-1"),
        ("--verbose", "replay", str(folder / "events.jsonl"), "--store", again),
    ]  # fmt: skip
    return {"commands": _output_of(folder, calls)}


def _output_of(folder: Path, calls: list[tuple[str, ...]]) -> bytes:
    """Return the output of some commands, called one after the other in one process."""
    command = [sys.executable, "-c", CALLS, json.dumps(calls)]
    done = subprocess.run(command, cwd=ROOT, env=_environ(folder), capture_output=True, check=True)
    return done.stdout + done.stderr


def _environ(folder: Path) -> dict[str, str]:
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("TAU_LIVE")},
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "hooks")]),
        "TAU_LIVE_RL": "1",
        "TAU_LIVE_RL_STORE": str(folder / "store.sqlite"),
        "TAU_LIVE_RL_RECORD": str(folder / "events.jsonl"),
        "TAU_LIVE_RL_CONTENT": "redacted",
        "TAU_LIVE_RL_DECIDE_DEADLINE_MS": "60000",
    }


def _hits(secrets: list[Secret], files: Mapping[str, bytes]) -> list[tuple[str, str]]:
    return [
        (secret.kind, name)
        for secret in secrets
        for name, content in files.items()
        if any(part.encode() in content for part in pieces(secret.core))
    ]
