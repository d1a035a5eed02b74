"""Runs a child of the drill."""

import sys

from tau_live.evidence.drill.child import arguments_of, train
from tau_live.evidence.drill.process import end_with_parent

end_with_parent()
train(arguments_of(sys.argv[1:]))
