"""Our plugin for llm: the models ``tau``, and the command ``llm tau-status``.

Nothing here may fail, or no command of llm would run; and nothing is imported before it is called.
"""

import importlib
import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import click
from llm import hookimpl

from tau_live.core.errors import suppress
from tau_live.core.switch import is_on
from tau_live.runtime import api


@hookimpl
def register_models(register: Any) -> None:
    """Register ``tau``, even while off: whoever made it the default must not lose llm by that."""
    try:
        llm_models = importlib.import_module("tau_live_hooks.llm_models")
        if llm_models.llm is not sys.modules["llm"]:  # it was imported anew
            importlib.reload(llm_models)
        register(llm_models.Tau(), llm_models.AsyncTau())
    except Exception as error:  # noqa: BLE001  # the border to the host
        _log_failure("llm_models_not_registered", error)


@hookimpl
def register_commands(cli: Any) -> None:
    """Register ``llm tau-status``."""
    try:
        cli.add_command(status)
    except Exception as error:  # noqa: BLE001  # the border to the host
        _log_failure("llm_commands_not_registered", error)


def _log_failure(event: str, error: Exception) -> None:
    from tau_live.core.errors import pass_on

    pass_on(error)
    from tau_live.core.switch import log_failure

    log_failure(event, error)


@click.command("tau-status")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, on one line.")
def status(*, as_json: bool) -> None:
    """Show whether tau-live sees llm here, and what the model tau may ask.

    For everything else: tau-live status
    """
    known = facts()
    if as_json:
        click.echo(json.dumps(known))
        return
    for name, value in _lines(known):
        click.echo(f"{name:<10} {value}")


def facts() -> dict[str, Any]:
    """Return what ``llm tau-status --json`` prints."""
    from tau_live_hooks.llm_models import Tau

    model = Tau()
    own = None
    with suppress(Exception):  # there may be none, which the facts then show
        own = model.own().model_id
    runtime = api.in_force() if is_on() else None
    answer: dict[str, Any] = {"on": runtime is not None, "asks": own, "may_ask": [], "unknown": []}
    if runtime is None:
        return answer
    from tau_live.core.settings.tables import Point
    from tau_live.runtime.adapters import declared_decision

    snapshot = runtime.snapshot()
    declared = declared_decision(Point.MODEL, runtime.settings.decisions)
    names = {} if declared is None else declared.options
    known = {name for name, value in names.items() if model.model_for(value) is not None}
    hosts, gate = snapshot["hosts"], snapshot["gate"]
    return answer | {
        "acting": runtime.settings.act,
        "adapter": hosts.get("llm") if isinstance(hosts, Mapping) else None,
        "store": str(runtime.settings.store),
        "gate": gate.get("state") if isinstance(gate, Mapping) else None,
        "may_ask": [name for name in names if name in known],
        "unknown": [name for name in names if name not in known],
    }


def _lines(answer: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    yield "tau-live", "on" if answer["on"] else "off in this shell (TAU_LIVE_RL)"
    yield "tau uses", answer["asks"] or "no model: llm aliases set tau-default MODEL"
    if not answer["on"]:
        return
    yield "may use", ", ".join(answer["may_ask"]) or "no other: none is declared"
    if answer["unknown"]:
        yield "unknown", ", ".join(answer["unknown"])
    yield "acting", "yes" if answer["acting"] else "no (TAU_LIVE_RL_ACT)"
    yield "adapter", answer["adapter"]
    yield "gate", answer["gate"]
    yield "store", answer["store"]
