"""A host and a third party's adapter for it, as two installed packages."""

HOST = '''
"""An agent framework; calls ``call`` for each run of an agent."""

__version__ = "0.0.1"


def call(name):
    return f"ran {name}"
'''

PLUGIN = """
import sys

from tau_live.runtime.adapters import Adapter
from tau_live.core.events import RunEnd, RunStart, Status
from tau_live.core.hookspecs import hookimpl

assert "bakery" not in sys.modules or "tau_live.boot.hosts" in sys.modules


def missing():
    import bakery

    return None if hasattr(bakery, "call") else "bakery.call"


def attach(in_force):
    import bakery

    original = bakery.call

    def call(name):
        runtime = in_force()
        if runtime is not None:
            run = {"host": "bakery", "run_id": name, "at": 1.0}
            runtime.emit(RunStart(**run))
            runtime.emit(RunEnd(**run, status=Status.OK))
        return original(name)

    def detach():
        bakery.call = original

    bakery.call = call
    return detach


ADAPTER = Adapter(host="bakery", module="bakery", probe=missing, attach=attach)


@hookimpl
def register_hosts(register):
    register("bakery", adapter=ADAPTER)
"""

NAMED = "[tau_live_hosts]\nbakery = bakery_hook:ADAPTER\n"
"""The adapter by the import that it is for, so that it is not imported before."""

ENTRY_POINTS = "[tau_live]\nbakery-hook = bakery_hook\n"

AGENT = """
import sys

import bakery

print(bakery.call(sys.argv[1]))
"""
