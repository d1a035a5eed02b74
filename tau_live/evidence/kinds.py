"""Kinds of artifacts: the struct of each, and the validators of those that are no reports."""

import time
from collections.abc import Callable, Iterable, Mapping

from tau_live.evidence.artifacts import Fault
from tau_live.evidence.drill import Drill, drill_faults
from tau_live.evidence.gate import Gate, gate_faults
from tau_live.evidence.operations import Operations, operations_faults
from tau_live.evidence.suites import Suite
from tau_live.evidence.summary import KIND, Summary
from tau_live.evidence.validation import STRUCTS, Checked


def _drill(document: object, against: Checked) -> Iterable[Fault]:
    now = time.time() if against.now is None else against.now
    return drill_faults(document, against.root, now=now)


OTHERS: Mapping[str, Callable[[object, Checked], Iterable[Fault]]] = {
    "drill": _drill,
    "ops": lambda document, against: operations_faults(document, against.root),
    "gate": lambda document, against: gate_faults(document, against.root),
}
"""The validators of artifacts that are neither reports nor proofs."""

KINDS: Mapping[str, type] = {
    **STRUCTS,
    KIND: Summary,
    "drill": Drill,
    "ops": Operations,
    "gate": Gate,
    "suite": Suite,
}
"""The struct of every kind of artifact."""
