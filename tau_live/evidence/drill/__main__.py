"""Runs a child of the drill."""

import sys

from tau_live.evidence.drill.child import arguments_of, train

train(arguments_of(sys.argv[1:]))
