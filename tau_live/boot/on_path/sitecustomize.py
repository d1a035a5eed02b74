"""Loaded by every Python under ``tau-live run``: runs the sitecustomize that it hides, then boots.

It leaves ``sys.path`` as it would be without it.
"""

import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path


def _run_hidden() -> None:
    here = Path(__file__).parent
    sys.path[:] = [entry for entry in sys.path if not entry or Path(entry) != here]
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


def _boot() -> None:
    try:
        from tau_live.boot.boot import boot
    except ImportError as error:
        if sys.stderr is not None:
            message = f"tau-live: not in {sys.executable}, which runs without it ({error})\n"
            sys.stderr.write(message)
    else:
        boot("run")


try:
    _run_hidden()
finally:
    _boot()
