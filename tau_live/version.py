"""Which tau-live this is, for modules below the door: the package itself imports that."""

import sys


def this_version() -> str:
    """Return the version that the package says it has."""
    return str(vars(sys.modules["tau_live"])["__version__"])
