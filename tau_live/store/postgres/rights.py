"""What each role of a store's database may do with its tables, and who may what one may not."""

import re
from collections.abc import Mapping, Sequence

HOST, LEARNER, OPERATOR, READER = ROLES = ("host", "learner", "operator", "reader")

KINDS = ("insert", "update", "delete")

_RECORDED = "attempts recorded_spans arms ready_points awaiting names queue queue_times"
_NUMBERS = "ids status_shards counter_shards sequences leases"
_PROMPTS = "optimizations candidates tool_use lessons quarantine replies steps resources"

RIGHTS: Mapping[str, Mapping[str, str]] = {
    HOST: {
        "insert": f"rollouts decisions rewards workers alerts alert_marks {_RECORDED} {_NUMBERS} "
        "seals",
        "update": "rollouts attempts recorded_spans awaiting rewards workers alert_marks turns "
        f"{_NUMBERS}",
        "delete": "awaiting queue ready_points rewards leases alerts alert_marks",
    },
    LEARNER: {
        "insert": "policies updates in_service trials monitors checkpoints resources candidates "
        "gate gate_log audit pauses",
        "update": "in_service trials monitors checkpoints resources candidates ready_points gate "
        "revisions",
        "delete": "checkpoints",
    },
    OPERATOR: {
        "insert": f"in_service trials gate gate_log audit pauses {_PROMPTS}",
        "update": f"in_service trials gate revisions {_PROMPTS}",
        "delete": f"pauses lessons rollouts decisions sequences checkpoints seals ids {_RECORDED}",
    },
    READER: {},
}
"""The tables that a role may change, beside those of ``BESIDE``."""

BESIDE: Mapping[str, Sequence[str]] = {LEARNER: (HOST,), OPERATOR: (HOST,)}
"""The roles whose rights a role has, too."""

KEPT_FROM_HOSTS = "lessons quarantine replies steps optimizations tool_use"
"""The tables that a host does not read: it needs none of them to record, decide and alert."""


REFUSED = re.compile(r"permission denied for table (\w+)")

FORMS: Mapping[str, str] = {
    "insert": r"\binsert into {}\b",
    "update": r"\bupdate {0}\b|\bfrom {0}\b.* for update",
    "delete": r"\bdelete from {}\b",
    "select": r"\b(from|join) {}\b",
}
"""What a statement looks like that does it to a table."""


def name_of(role: str, schema: str) -> str:
    """Return what a role is named on the server: that of a tenant, which is a schema, by it."""
    return f"tau_live_{role}" if schema == "public" else f"tau_live_{schema}_{role}"


def tables_of(role: str, kind: str) -> list[str]:
    """Return the tables that a role may change in a way, sorted."""
    roles = (role, *BESIDE.get(role, ()))
    return sorted({table for each in roles for table in RIGHTS[each].get(kind, "").split()})


def may(role: str, kind: str, table: str) -> bool:
    """Return whether a role may ``select`` from a table, or change it in a way."""
    if kind == "select":
        return role != HOST or table not in KEPT_FROM_HOSTS.split()
    return table in tables_of(role, kind)


def lacking(refusal: str, sql: str, schema: str) -> str:
    """Return what a server refused a login, with the roles that may do it, or where they are.

    Args:
        refusal: What the server says.
        sql: The statement, if it is known.
        schema: That of the store.
    """
    named, text = REFUSED.search(refusal), " ".join(sql.lower().split())
    table = named[1] if named else ""
    kind = next((kind for kind, form in FORMS.items() if re.search(form.format(table), text)), "")
    roles = [name_of(role, schema) for role in ROLES if may(role, kind, table)]
    if not table or not kind:
        return f"{refusal}: docs/howto/fleet.md (who may do what) says which role it needs"
    needed = " or ".join(roles) or "that of the owner"
    return f"this login may not {kind} {table}: it needs the role {needed}"
