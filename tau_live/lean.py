"""The script ``tau-live``: `gate` and `kill` without the imports of click, all else by click."""

import sys

from tau_live.operate.lean import run_plain


def main() -> None:
    """Run the command."""
    code = run_plain(sys.argv[1:])
    if code is None:
        from tau_live.cli import main as run

        run(prog_name="tau-live")
    sys.exit(code)
