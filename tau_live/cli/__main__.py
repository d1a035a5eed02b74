"""``python -m tau_live.cli``, where the script is not on the path."""

from tau_live.cli import main

main(prog_name="tau-live")
