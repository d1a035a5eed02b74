"""``llm tau-status``: whether tau-live sees llm here, and what the model ``tau`` may ask."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import click

from tau_live import door
from tau_live.errors import suppress
from tau_live.process_switch import is_on


@click.command("tau-status")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, on one line.")
def status(*, as_json: bool) -> None:
    """Show whether tau-live sees llm here, and what the model tau may ask.

    Everything else is told by: tau-live status
    """
    found = facts()
    if as_json:
        click.echo(json.dumps(found))
        return
    for name, value in _lines(found):
        click.echo(f"{name:<10} {value}")


def facts() -> dict[str, Any]:
    """Return what ``llm tau-status --json`` prints."""
    from tau_live_hooks.llm_models import Tau

    model = Tau()
    own = None
    with suppress(Exception):  # there may be none, which is what is to be told
        own = model.own().model_id
    runtime = door.in_force() if is_on() else None
    found: dict[str, Any] = {"on": runtime is not None, "asks": own, "may_ask": [], "unknown": []}
    if runtime is None:
        return found
    from tau_live.offered import declared
    from tau_live.settings.decisions import Point

    snapshot = runtime.snapshot()
    told = declared(Point.MODEL, runtime.settings.decisions)
    names = {} if told is None else told.options
    known = {name for name, value in names.items() if model.meant(value) is not None}
    hosts, gate = snapshot["hosts"], snapshot["gate"]
    return found | {
        "acting": runtime.settings.act,
        "adapter": hosts.get("llm") if isinstance(hosts, Mapping) else None,
        "store": str(runtime.settings.store),
        "gate": gate.get("state") if isinstance(gate, Mapping) else None,
        "may_ask": [name for name in names if name in known],
        "unknown": [name for name in names if name not in known],
    }


def _lines(found: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    yield "tau-live", "on" if found["on"] else "off in this shell (TAU_LIVE_RL)"
    yield "tau uses", found["asks"] or "no model: llm aliases set tau-default MODEL"
    if not found["on"]:
        return
    yield "may use", ", ".join(found["may_ask"]) or "no other: none is declared"
    if found["unknown"]:
        yield "unknown", ", ".join(found["unknown"])
    yield "acting", "yes" if found["acting"] else "no (TAU_LIVE_RL_ACT)"
    yield "adapter", found["adapter"]
    yield "gate", found["gate"]
    yield "store", found["store"]
