"""What an operator does with lessons: verify, export, import, prune, roll back, ship, withdraw."""

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from tau_live.core.errors import TauLiveError, UnknownError
from tau_live.core.files import make_folders, write_whole
from tau_live.core.pools import evidence_of, resource_of_domain
from tau_live.core.processes import this_process
from tau_live.core.records import AuditEntry
from tau_live.core.sanitize import JsonObject
from tau_live.experience.credit import Uplift
from tau_live.experience.log import CHAINS, LEASE, Change, Log, Place, name_of, take_pool
from tau_live.experience.records import (
    REFERENCE_NAMES,
    Chain,
    Experience,
    LessonVersion,
    line_of,
    to_json,
)
from tau_live.experience.stamps import ChainCheck, Head, check_record, stamp
from tau_live.store.records import Candidate, Optimization, StepRow
from tau_live.store.roles import Store
from tau_live.store.sealing import Keys

FILES: Mapping[Chain, str] = {
    "ledger": "trajectories.jsonl",
    "experiences": "experiences.jsonl",
    "operations": "ops.jsonl",
}


def read_heads(path: Path) -> dict[Chain, Head]:
    """Return heads that were kept in a file: a manifest, or what ``verify --json`` printed.

    Raises:
        TauLiveError: The file holds none.
    """
    try:
        data = json.loads(path.read_bytes())
        heads = [msgspec.convert(head, Head) for head in data["heads"].values()]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise TauLiveError(f"{path} holds no heads: {error!r}") from error
    return {head.chain: head for head in heads}


def verify(store: Store, keys: Keys, kept: Mapping[Chain, Head]) -> JsonObject:
    """Return what is wrong with the chains, and how they end; nothing is changed.

    Records in quarantine that an operator has dropped or stamped anew are settled.

    Args:
        store: The store.
        keys: The stamping keys.
        kept: Heads that were kept elsewhere: they show a cut-off end.
    """
    log = Log(store, keys, kept=kept, repairs=False)
    known = store.experience.quarantine()
    settled = Counter((each.chain, each.reason) for each in known if each.state != "held")
    faults = {
        chain: {why: left for why, n in own.items() if (left := n - settled[chain, why]) > 0}
        for chain, own in log.faults.items()
    }
    faults = {chain: own for chain, own in faults.items() if own}
    held = [each for each in known if each.state == "held"]
    refused = [{"seq": seq, "reason": reason} for seq, reason in log.pool.refused]
    return {
        "valid": not faults and not log.cut and not refused,
        "heads": {chain: msgspec.to_builtins(log.heads[chain]) for chain in CHAINS},
        "faults": faults,
        "cut": log.cut,
        "refused": refused,
        "pool_version": log.pool.version,
        "lessons": len(log.pool.lessons),
        "quarantined": len(held),
    }


def export(store: Store, keys: Keys, folder: Path, *, reference_names: bool) -> dict[str, int]:
    """Write the chains into three files of a folder, and return how many records each has.

    Only records that can be trusted are written.

    Raises:
        OSError: They cannot be written.
    """
    make_folders(folder)
    counts = {}
    for chain, name in FILES.items():
        check, lines = ChainCheck(chain, keys), []
        for row in store.experience.chain(chain):
            record, _ = check.check(row.content)
            if record is not None:
                lines.append(line_of(to_json(record), reference_names=reference_names))
        write_whole(folder / name, b"".join(lines))
        counts[name] = len(lines)
    return counts


def import_(store: Store, keys: Keys, folder: Path) -> dict[str, int]:
    """Add the records of exported files that the store lacks, and return how many of each chain.

    Every record is verified before any is stored, and what the store has must be their beginning.

    Raises:
        TauLiveError: A record cannot be trusted, or the store has another past.
    """
    new: dict[Chain, dict[str, str]] = {}
    names = {other: own for own, other in REFERENCE_NAMES.items()}
    for chain, name in FILES.items():
        check, texts = ChainCheck(chain, keys), {}
        for number, line in enumerate(_lines(folder / name), start=1):
            renamed = {names.get(key, key): value for key, value in line.items()}
            text = line_of(renamed).decode().rstrip("\n")
            fault = check.check(text).fault
            if fault is not None:
                raise TauLiveError(f"{folder / name}, line {number}: {fault}; nothing is imported")
            texts[name_of(renamed)] = text
        new[chain] = texts
    take_pool(store)
    try:
        with store.begin():
            log = Log(store, keys)
            for chain, texts in new.items():
                _check_past(store, chain, log, texts)
                known = store.experience.by_name(chain, [*texts])
                left = {name: text for name, text in texts.items() if name not in known}
                new[chain] = left
                store.experience.append(chain, left)
    finally:
        store.leases.release(LEASE, this_process())
    return {FILES[chain]: len(texts) for chain, texts in new.items()}


def _check_past(store: Store, chain: Chain, log: Log, texts: Mapping[str, str]) -> None:
    """Check that the records of a store are the beginning of others."""
    head = log.heads[chain]
    if head.count and not any(f'"{head.last_stamp}"' in text for text in texts.values()):
        raise TauLiveError(f"the {chain} of {store.path} have another past; nothing is imported")


def _lines(path: Path) -> list[dict[str, object]]:
    try:
        records = [json.loads(line) for line in path.read_bytes().splitlines() if line.strip()]
    except (OSError, ValueError, RecursionError) as error:
        raise TauLiveError(f"{path} cannot be read: {error}") from error
    if not all(isinstance(record, dict) for record in records):
        raise TauLiveError(f"{path} holds a line that is no object")
    return records


def change_pool(
    store: Store, keys: Keys, changes: Sequence[Change], *, action: str, reason: str, who: str
) -> str:
    """Change the pool by hand, with a line of the audit, and return its version.

    Raises:
        LeaseLostError: A run changes it.
        PoolError: An operation does not fit.
    """
    take_pool(store)
    try:
        log = Log(store, keys)
        with store.begin():
            log.change(changes, Place())
            details: JsonObject = {
                "pool_version": log.pool.version,
                "operations": [[change.op, change.fields] for change in changes],
            }
            _audit(store, action, reason=reason, who=who, details=details)
    finally:
        store.leases.release(LEASE, this_process())
    return log.pool.version


def restamp(store: Store, keys: Keys, seq: int, *, reason: str, who: str) -> str:
    """Stamp a record in quarantine anew, after an operator has read it, and return its name.

    A lesson is part of the pool again only by an operation.

    Raises:
        UnknownError: It is not in quarantine.
        TauLiveError: Its content is wrong whoever stamps it.
    """
    held = next((each for each in store.experience.quarantine() if each.seq == seq), None)
    if held is None or held.state != "held":
        raise UnknownError("record in quarantine", str(seq))
    chain = next(chain for chain in CHAINS if chain == held.chain)
    try:
        data = json.loads(held.content)
    except (ValueError, RecursionError) as error:
        raise TauLiveError(f"{held.name} is not JSON: {error}") from error
    draft = stamp(data, keys, prev_stamp="0" * 64)
    fault = check_record(draft, chain, keys).fault
    if fault is not None:
        raise TauLiveError(f"{held.name} cannot be used whoever stamps it: {fault}")
    take_pool(store)
    try:
        log = Log(store, keys)
        with store.begin():
            log.append(chain, [data])
            store.experience.release(seq, "restamped")
            details: JsonObject = {"quarantine": seq, "name": held.name}
            _audit(store, "experience restamp", reason=reason, who=who, details=details)
    finally:
        store.leases.release(LEASE, this_process())
    return held.name


def drop(store: Store, seq: int, *, reason: str, who: str) -> None:
    """Give up a record in quarantine. Raises: UnknownError."""
    with store.begin():
        if not store.experience.release(seq, "dropped"):
            raise UnknownError("record in quarantine", str(seq))
        details: JsonObject = {"quarantine": seq}
        _audit(store, "experience drop", reason=reason, who=who, details=details)


def test_row(store: Store, run: Optimization) -> StepRow:
    """Return what the test of a run has proven.

    Raises:
        TauLiveError: It has proven nothing.
    """
    test = next((s for s in store.experience.steps(run.run_id) if s.phase == "test"), None)
    decision = None if test is None else test.content["ship"]
    if test is None or decision != "shipped":
        why = "has not been tested" if test is None else f"is {decision}, not shipped"
        raise TauLiveError(f"the pool of {run.run_id} {why}")
    return test


def ship(store: Store, keys: Keys, run: Optimization, *, reason: str, who: str) -> list[str]:
    """Put the pool that a run has proven into service, and return the resources.

    Each domain has its own. Live agents that declare ``options-from = "experience:DOMAIN"`` are
    offered it, a twentieth of their runs at first.

    Raises:
        TauLiveError: The run has proven nothing, or a lesson cannot be trusted any more.
    """
    test = test_row(store, run).content
    log = Log(store, keys, repairs=False)
    injected = msgspec.convert(test["injected"], dict[str, list[LessonVersion]])
    blocks, names = _object(test["blocks"]), []
    packs = msgspec.convert(_object(run.report["inputs"])["packs"], list[dict[str, str]])
    digests = {pack["domain"]: pack["digest"] for pack in packs}
    with store.begin():
        latest = store.resources.latest()
        for domain, known in injected.items():
            if not known:
                continue
            lost = [f"{id_}@{n}" for id_, n in known if (id_, n) not in log.lessons]
            if lost:
                raise TauLiveError(f"{lost[0]} cannot be trusted any more")
            name = resource_of_domain(domain)
            version = str(test["version"])
            content: dict[str, object] = {
                "pool_version": version,
                "block": str(blocks[domain]),
                "pack_digest": digests[domain],
                "model_id": run.model_ref,
                "lessons": [list(each) for each in known],
                "head": msgspec.to_builtins(log.heads["operations"]),
            }
            row = _object(test["row"])
            content["evidence"] = evidence_of(
                content, keys.sign,
                {"run_id": run.run_id, "key_id": keys.key_id, "verdict": row["verdict"]},
            )  # fmt: skip
            expected = latest[name].version if name in latest else 0
            store.resources.publish({name: content}, expected={name: expected})
            label = f"pool-{domain}"
            store.optimizations.keep(
                Candidate(
                    run_id=run.run_id, label=label, version=f"experience-{version}",
                    text=str(blocks[domain]), round=0, state="adopted", made_at=time.time(),
                )
            )  # fmt: skip
            names.append(name)
        details: JsonObject = {"run_id": run.run_id, "pool_version": test["version"]}
        _audit(store, "experience ship", reason=reason, who=who, details=details)
    if not names:
        raise TauLiveError(f"the pool of {run.run_id} is empty: there is nothing to ship")
    return names


def withdraw(store: Store, version: str, *, reason: str, who: str) -> bool:
    """Take a pool out of service; ``False`` if it is in none.

    Args:
        store: The store.
        version: Its version, such as ``E-4f53cda18c2b``.
        reason: Why.
        who: Who is on record for it.
    """
    with store.begin():
        was_there = store.optimizations.set_prompt_state(
            f"experience-{version}", "withdrawn", why=reason
        )
        if was_there:
            details: JsonObject = {"pool_version": version}
            _audit(store, "experience withdraw", reason=reason, who=who, details=details)
    return was_there


def describe(lesson: Experience, effect: Uplift | None, *, in_force: bool) -> JsonObject:
    """Return a version of a lesson with what it was measured to do."""
    known = effect or Uplift()
    half = 1.959963984540054 * known.sd
    return {
        **to_json(lesson),
        "in_force": in_force,
        "exposures": known.exposures,
        "withheld": known.withheld,
        "uplift": known.mean if known.sd else None,
        "interval": [known.mean - half, known.mean + half] if known.sd else None,
        "harm": known.harm if known.sd else None,
    }


def _object(value: object) -> dict[str, object]:
    return dict(value) if isinstance(value, dict) else {}


def _audit(store: Store, action: str, *, reason: str, who: str, details: JsonObject) -> None:
    store.audit.add(
        AuditEntry(at=time.time(), who=who, action=action, reason=reason, details=details)
    )
