"""The drill: a training that is killed and goes on comes to what one comes to that is not."""

from tau_live.evidence.drill.documents import Drill as Drill
from tau_live.evidence.drill.running import run_drill as run_drill
from tau_live.evidence.drill.validation import drill_faults as drill_faults
