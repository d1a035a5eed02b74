"""The parameters of the dashboard's endpoints, and the document that describes them."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from tau_live.cli.dashboard.actions import Action
from tau_live.core.records import RolloutStatus
from tau_live.core.version import this_version

CSRF = "x-tau-csrf"
Text = Annotated[str, msgspec.Meta(max_length=1000, pattern="^[^\\x00]*$")]


class Which(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which store is shown.

    Attributes:
        store: Its number, from 0.
    """

    store: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 0


class Timeline(Which, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which minutes of the queues are shown.

    Attributes:
        minutes: How many, up to now.
    """

    minutes: Annotated[int, msgspec.Meta(ge=1, le=1440)] = 60


class Rollouts(Which, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which rollouts are listed.

    Attributes:
        page: Which page, from 1.
        per_page: How many are on one.
        text: What is in them.
        status: Only those with this status.
        name: Only those of this name.
        host: Only those of this host.
        sort: What they are sorted by, the newest or largest first.
        ascending: Whether the oldest or smallest come first.
    """

    page: Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)] = 1
    per_page: Annotated[int, msgspec.Meta(ge=1, le=200)] = 50
    text: Text = ""
    status: RolloutStatus | None = None
    name: Text = ""
    host: Text = ""
    sort: str = "seq"
    ascending: bool = False


GETS: Mapping[str, tuple[str, type[Which]]] = {
    **{
        f"/dashboard/{name}": (f"The section `{name}`.", Which)
        for name in (
            "health", "widgets", "alerts", "summary", "figures", "facts", "versions", "runs",
            "decisions",
        )
    },
    "/dashboard/queue-timeline": ("What happened to the queues, by minute.", Timeline),
    "/dashboard/rollouts/{id}": ("One rollout, with its spans and decisions.", Which),
    "/dashboard/decisions/{id}": ("Why one decision was made.", Which),
    "/training/status": ("How the newest run, or the live loop, stands.", Which),
    "/training/rollouts": ("A page of rollouts.", Rollouts),
}  # fmt: skip
"""The purpose and the parameters of every endpoint that is read."""


def openapi() -> dict[str, Any]:
    """Return the OpenAPI document of the dashboard."""
    kinds = [Which, Timeline, Rollouts, Action]
    schemas = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")[1]
    content = {"content": {"application/json": {"schema": {"type": "object"}}}}
    failures = {
        "4XX": {"description": "Refused: `error` has a code and a message.", **content},
        "503": {"description": "The store cannot be read.", **content},
    }
    done = {"description": "Done.", **content}

    def query(kind: type[Which]) -> list[dict[str, Any]]:
        fields = schemas[kind.__name__]["properties"]
        return [{"name": name, "in": "query", "schema": schema} for name, schema in fields.items()]

    in_path = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
    paths: dict[str, Any] = {
        path: {
            "get": {
                "summary": summary,
                "parameters": [*([in_path] if "{id}" in path else []), *query(kind)],
                "responses": {"200": done, **failures},
            }
        }
        for path, (summary, kind) in GETS.items()
    }
    action = {"$ref": "#/components/schemas/Action"}
    own = {"name": CSRF, "in": "header", "required": True, "schema": {"type": "string"}}
    paths["/dashboard/actions"] = {
        "post": {
            "summary": "Act as an operator, with a reason.",
            "parameters": [*query(Which), own],
            "requestBody": {"required": True, "content": {"application/json": {"schema": action}}},
            "responses": {"202": done, **failures},
        }
    }
    paths["/dashboard/stream"] = {
        "get": {
            "summary": "Server-sent events: `dashboard.snapshot` whenever something changed.",
            "parameters": [
                *query(Which),
                {"name": "last-event-id", "in": "header", "schema": {"type": "string"}},
            ],
            "responses": {
                "200": {"description": "Events.", "content": {"text/event-stream": {}}},
                "4XX": failures["4XX"],
            },
        }
    }
    info = {"title": "tau-live dashboard", "version": this_version()}
    return {
        "openapi": "3.1.0",
        "info": info,
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "apiKey", "in": "header", "name": "x-tau-token"}},
        },
    }
