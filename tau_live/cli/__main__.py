"""``python -m tau_live.cli``, where the script is not on the path."""

import sys

from tau_live.core.standard_streams import open_closed

open_closed(sys.argv[1:])

from tau_live.cli import main  # noqa: E402  # which looks at the streams

main(prog_name="tau-live")
