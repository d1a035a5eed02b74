"""Operational proof: four checks that are done for real, each in a child with a log of its own."""

from tau_live.evidence.operations.documents import Operations as Operations
from tau_live.evidence.operations.documents import artifact_of as artifact_of
from tau_live.evidence.operations.running import operations_faults as operations_faults
from tau_live.evidence.operations.running import run_operations as run_operations
