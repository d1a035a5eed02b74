"""Runs a check of the operational proof, or its agent."""

import argparse
import os
import sys
from pathlib import Path

from tau_live.core.errors import TauLiveError
from tau_live.evidence.artifacts import Root
from tau_live.evidence.drill.process import end_with_parent
from tau_live.evidence.operations.agent import serve
from tau_live.evidence.operations.checks import CHECKS, Place


def check(argv: list[str]) -> bool:
    """Return whether the check that the arguments name passes."""
    parser = argparse.ArgumentParser(prog="tau_live.evidence.operations")
    parser.add_argument("check", choices=[*CHECKS])
    for name in ("--run-id", "--state", "--proof"):
        parser.add_argument(name, required=True)
    own = parser.parse_args(argv)
    try:
        place = Place(Root(Path()), own.run_id, own.state, own.proof, os.environ)
        return CHECKS[own.check](place)
    except TauLiveError as error:
        print(error)  # noqa: T201  # its log
        return False


if sys.argv[1:2] == ["agent"]:
    serve(Path(sys.argv[2]))
else:
    end_with_parent()
    sys.exit(0 if check(sys.argv[1:]) else 1)
