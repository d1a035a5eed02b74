"""Records every scenario anew: ``python -m tau_live.testing ADAPTER PLAY FOLDER``."""

import sys

from tau_live.testing.golden import main

main(sys.argv[1:])
