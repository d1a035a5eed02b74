"""Records every scenario again: ``python -m tau_live.testing ADAPTER PLAY FOLDER``."""

from tau_live.testing.golden import main

main()
