"""Starts and ends of runs from spans, and the run that an event belongs to."""

from collections.abc import Mapping
from typing import Any

from tau_live import events as ev
from tau_live.telemetry import said as says
from tau_live.telemetry.kinds import Kind
from tau_live.telemetry.spans import Around, Ended
from tau_live.telemetry.steps import took_ms
from tau_live.telemetry.tree import Home, Node, Run, home_of

HOST = "opentelemetry"

Ids = tuple[str, str, str]
"""Of a run: its host, its key there, and its execution."""


def ids_of(run: Run) -> Ids:
    """Return the ids of a run of ours."""
    return HOST, run.key, ""


def ids_around(around: Around) -> Ids:
    """Return the ids of another adapter's run, or one of the public door."""
    return around.host, around.run_id, around.execution


def event_of(kind: type[ev.Event], of: Run | Ids, fields: Mapping[str, Any]) -> ev.Event:
    """Return an event of a run."""
    named: dict[str, Any] = {}
    if isinstance(of, Run):
        named = {"session_id": of.session, "agent": of.agent}
        of = ids_of(of)
    host, run_id, execution = of
    return kind(**{"host": host, "run_id": run_id, "execution": execution, **named, **fields})


def key_of(node: Node) -> str:
    """Return the key of the run that a span is: a root's is the trace's id."""
    begun = node.begun
    return begun.trace if begun.parent is None else f"{begun.trace}:{begun.id}"


def start_of(run: Run) -> dict[str, Any]:
    """Return the fields of a run's start, as far as they are known, and note what was told.

    The run around it is left out while a span around it may turn out to be one: a store keeps the
    first that it is given.
    """
    begun = run.node.begun
    said, above = begun.attributes, run_around(run) if run.behind is None else None
    run.told = True
    run.session = run.session or _session(run.node)
    run.agent = run.agent or (says.agent_of(said) if run.whole else None)
    fidelity = ev.Fidelity.END_ONLY if run.whole else ev.Fidelity.INFERRED
    known = {
        "trace_id": begun.trace,
        "span_id": begun.id,
        "scope": begun.scope,
        "service": None if begun.service is None else begun.service(),
        "fidelity": fidelity.value,
    }
    fields: dict[str, Any] = {
        "at": begun.at,
        "name": run.agent or begun.name.removeprefix("invoke_agent "),
        "session_id": run.session,
        "input": says.input_of(said) if run.whole else None,
        "model": says.model_of(said) if run.whole else None,
        "trigger": "tool" if above is not None and _in_tool(run.node) else None,
        "metadata": {name: value for name, value in known.items() if value},
        "fidelity": fidelity,
        "parent_run_id": above[1] if above else None,
        "parent_host": above[0] if above and above[0] != HOST else None,
    }
    run.input_told = fields["input"] is not None
    return fields


def knows_all(run: Run, ended: Ended) -> bool:
    """Say whether a run's start has told what its end knows of it; its session is known now."""
    knew, said = run.session, ended.begun.attributes
    run.session = knew or _session(run.node) or ended.begun.trace
    has_input = run.whole and says.input_of(said) is not None
    return run.told and run.session == knew and (run.input_told or not has_input)


def end_of(run: Run, ended: Ended) -> dict[str, Any]:
    """Return the fields of a run's end."""
    said, tally = ended.begun.attributes, run.tally
    problem = says.problem_of(ended, fatal=True)
    retried = problem.status is ev.Status.RETRY
    usage = says.usage_of(said, summed=True) if run.whole and not tally.usage else tally.usage
    return {
        "at": ended.at,
        "status": ev.Status.ERROR if retried else problem.status,
        "error": problem.error,
        "reason": problem.reason,
        "output": says.output_of(said) if run.whole else None,
        "usage": usage,
        "cost_usd": says.cost_of(said) if tally.cost is None else tally.cost,
        "turns": tally.turns or None,
        "duration_ms": took_ms(ended),
        "fidelity": ev.Fidelity.END_ONLY if run.whole else ev.Fidelity.INFERRED,
    }


def run_of(node: Node) -> Ids | None:
    """Return the ids of the run that a span is, or is of."""
    if node.run is not None:
        return ids_of(node.run)
    home = home_of(node, settled=True)
    run = home.run or (home.root.run if home.root is not None else None)
    if run is not None:
        return ids_of(run)
    return None if home.around is None else ids_around(home.around)


def run_around(run: Run) -> tuple[str, str] | None:
    """Return host and key of the run around a run."""
    home = home_of(run.node, settled=True) if run.whole else Home()
    if home.run is not None:
        return HOST, home.run.key
    around = run.node.around
    return None if around is None else (around.host, around.run_id)


def _session(node: Node) -> str | None:
    """Return the session of a run, or of what is around it."""
    above: Node | None = node
    while above is not None:
        found = says.session_of(above.begun.attributes)
        if found is not None:
            return found
        above = above.above
    return None if node.around is None else node.around.session_id


def _in_tool(node: Node) -> bool:
    above = node.above
    while above is not None and above.run is None:
        if above.known() is Kind.TOOL:
            return True
        above = above.above
    return False
