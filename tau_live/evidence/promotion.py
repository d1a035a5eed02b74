"""Promotion by hand on a proof: a version becomes the champion only if one allows it."""

from collections.abc import Callable
from pathlib import Path

import msgspec

from tau_live.core.errors import PolicyError
from tau_live.core.records import AuditEntry
from tau_live.core.settings import Settings
from tau_live.evidence.artifacts import Names, Root, parse, read_bytes
from tau_live.evidence.proof import Proof
from tau_live.evidence.validation import Checked, validate
from tau_live.operate.trials import Changed, Order
from tau_live.store.roles import Store
from tau_live.store.sealing import key_in

GATE = "checkpoint_promotion_gate_v1"
"""The action of the line of the audit that says what a proof allowed."""

Act = Callable[[Store, Settings, Order], Changed]


def promote_on_proof(
    store: Store, settings: Settings, order: Order, *, act: Act, proof: Path | None, root: Root
) -> Changed:
    """Make the version in service the champion, if its proof allows that.

    What the proof allowed is a line of the audit, also where it is refused.

    Args:
        store: The store.
        settings: Its settings; ``require_proof`` refuses where no proof is named.
        order: The order.
        act: Carries it out.
        proof: The file of the proof; ``None`` if none is named.
        root: The project of the proof.

    Raises:
        PolicyError: A proof is required and none is named, or it is invalid, of another version, or
            does not pass.
    """
    if proof is None:
        if settings.require_proof:
            raise PolicyError(
                f"require-proof is set: name a proof of the version of {order.point!r} "
                "with --proof FILE"
            )
        return act(store, settings, order)
    content = read_bytes(proof, str(proof))  # once: what is judged is what was validated
    against = Checked(root, settings=settings, key=key_in(settings.audit_key_file))
    checked = validate(proof, against, content=content)
    if checked.valid and checked.kind != "proof":
        raise PolicyError(f"{proof} is no proof: it is a valid artifact of the kind {checked.kind}")
    document = None if checked.errors else msgspec.convert(parse(content), Proof)
    with store.begin():
        serving = store.policies.in_service().get(order.point)
        version = 0 if serving is None else serving.version
        codes = [error.code for error in checked.errors]
        if document is not None:
            codes += _reasons(store, document, order.point, version)
        store.audit.add(_entry(order, version, document, [*dict.fromkeys(codes)]))
        if not codes:
            return act(store, settings, order)
    shown = ", ".join(dict.fromkeys(codes))
    raise PolicyError(
        f"version {version} of {order.point!r} is not promoted: {proof} does not allow it ({shown})"
    )


def _reasons(store: Store, proof: Proof, point: str, version: int) -> list[str]:
    """Return why a valid proof does not allow to promote a version; empty if it does."""
    kind, _, rest = proof.trained.checkpoint_id.partition(":")
    known = {row.version: row.sha256 for row in store.policies.versions(point)}
    is_own = (kind == "policy" and rest == f"{point}@{version}") or (
        kind == "checkpoint" and known.get(version) == proof.trained.policy_sha256
    )
    others = [] if is_own and version else ["proof_of_another_version"]
    champion = store.trials.trial(point).champion or 0
    if proof.baseline.checkpoint_id not in {"host", f"policy:{point}@{champion}"}:
        others.append("proof_against_another_baseline")
    return others + proof.failure_analysis.reasons


def _entry(order: Order, version: int, proof: Proof | None, codes: list[str]) -> AuditEntry:
    details: dict[str, object] = {
        "checkpoint": f"policy:{order.point}@{version}", "allowed": not codes,
        "reason_codes": codes,
    }  # fmt: skip
    if proof is not None:
        details |= {
            "proof": Names(proof.run_id).proof,
            "proof_sha256": proof.proof_sha256,
            "baseline_mean_safety_penalty": proof.baseline.mean_safety_penalty,
            "trained_mean_safety_penalty": proof.trained.mean_safety_penalty,
            "safety_upper_bound": proof.safety_benchmark.safety_upper_bound,
            "max_safety_regression": proof.safety_benchmark.max_safety_regression,
        }
    return AuditEntry(at=order.at, who=order.who, action=GATE, reason=order.reason, details=details)
