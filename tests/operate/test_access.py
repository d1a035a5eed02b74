"""Who may do what: the rulings of the reference's contract (CP8), and files that say nothing."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau_live.core.errors import AccessError
from tau_live.operate.access import Access, Role, Ruling, check, parse_access, principal_of

OPERATOR = {
    "schema_version": 1,
    "team_mode": True,
    "bindings": [
        {"principal": "local:ops", "roles": ["operator"]},
        {"principal": "local:lead", "roles": ["operator", "lead"]},
        {"principal": "local:ci-*", "roles": ["reader"]},
        {"principal": "local:idle", "roles": []},
    ],
    "roles": {
        "operator": {"allow": ["control:rl:pause", "control:rl:resume", "control:rl:roll*"]},
        "lead": {"allow": ["control:rl:*"], "deny": ["control:rl:cancel"]},
        "reader": {"allow": ["control:rl:status"], "deny": ["*"]},
    },
}
NAMES = st.text(st.sampled_from("abc:*"), max_size=6)


@pytest.mark.parametrize(
    ("principal", "action", "reason"),
    [
        ("local:ops", "control:rl:pause", "allow_role_policy"),
        ("local:ops", "control:rl:rollback", "allow_role_policy"),
        ("local:ops", "control:rl:cancel", "deny_no_matching_allow"),
        ("local:lead", "control:rl:promote", "allow_role_policy"),
        ("local:lead", "control:rl:cancel", "deny_role_policy"),
        ("local:ci-7", "control:rl:status", "deny_role_policy"),
        ("local:idle", "control:rl:pause", "deny_no_matching_allow"),
        ("local:nobody", "control:rl:pause", "deny_unbound_principal"),
        ("", "control:rl:pause", "deny_principal_missing"),
        ("  ", "control:rl:pause", "deny_principal_missing"),
    ],
)
def test_a_ruling_is_the_one_of_the_contract(principal: str, action: str, reason: str) -> None:
    ruling = parse_access(json.dumps(OPERATOR)).ruling(principal, action)

    assert ruling.value == reason
    assert ruling.allows is reason.startswith("allow")


@pytest.mark.parametrize("principal", ["local:ops", "local:nobody", ""])
def test_without_team_mode_everybody_may_do_everything(principal: str) -> None:
    access = parse_access(json.dumps({**OPERATOR, "team_mode": False}))

    assert access.ruling(principal, "control:rl:cancel") is Ruling.TEAM_MODE_DISABLED


def test_where_no_file_is_named_everybody_may_do_everything() -> None:
    assert check(None, "", "control:rl:kill").value == "allow_team_mode_disabled"


@given(st.lists(NAMES, max_size=3), st.lists(NAMES, max_size=3), NAMES)
def test_what_is_denied_is_denied_whatever_is_allowed(
    allow: list[str], deny: list[str], action: str
) -> None:
    access = Access(team_mode=True, bindings=[("*", ["r"])], roles={"r": Role(allow, deny)})
    without = Access(team_mode=True, bindings=[("*", ["r"])], roles={"r": Role(allow, [])})

    found = access.ruling("me", action)

    assert not (found.allows and not without.ruling("me", action).allows)
    assert found is Ruling.DENIED or action not in deny


@given(NAMES, NAMES)
def test_a_star_stands_for_any_part_and_nothing_else_is_special(pattern: str, name: str) -> None:
    access = Access(team_mode=True, bindings=[(pattern, [])], roles={})

    bound = access.ruling(f"x{name}", "a") is not Ruling.UNBOUND_PRINCIPAL

    assert bound is _like(pattern, f"x{name}")


@pytest.mark.parametrize(
    ("environ", "named", "principal"),
    [
        ({}, None, "local:operator"),
        ({"LOGNAME": "log"}, None, "local:log"),
        ({"LOGNAME": "log", "USER": "user"}, None, "local:user"),
        ({"USER": "user", "TAU_RBAC_LOCAL_ACTOR": "actor"}, None, "local:actor"),
        ({"USER": " "}, None, "local:operator"),
        ({"USER": "user"}, "team:night", "team:night"),
    ],
)
def test_who_calls_is_said_by_a_setting_or_by_the_machine(
    environ: dict[str, str], named: str | None, principal: str
) -> None:
    assert principal_of(environ, named) == principal


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "Expecting value"),
        ("{", "Expecting property name"),
        ("[]", "the file must be an object"),
        ("{}", "unsupported schema version None (expected 1)"),
        ('{"schema_version": 2}', "unsupported schema version 2 (expected 1)"),
        ('{"schema_version": true}', "unsupported schema version True"),
        ('{"schema_version": 1, "team_mode": "yes"}', "team_mode must be true or false"),
        ('{"schema_version": 1, "team": true}', "the file cannot have 'team'"),
        ('{"schema_version": 1, "roles": []}', "roles must be an object"),
        ('{"schema_version": 1, "roles": {"r": {"denies": []}}}', "cannot have 'denies'"),
        ('{"schema_version": 1, "roles": {"r": {"deny": "x"}}}', "deny of 'r' must be a list"),
        ('{"schema_version": 1, "roles": {"r": {"deny": [1]}}}', "deny of 'r' must be names"),
        ('{"schema_version": 1, "bindings": [{"roles": []}]}', "a binding needs a principal"),
        (
            '{"schema_version": 1, "bindings": [{"principal": "a", "roles": ["r"]}]}',
            "'a' is bound to the role 'r', which does not exist",
        ),
        (
            '{"schema_version": 1, "roles": {"r": {"deny": ["*"], "deny": []}}}',
            "'deny' appears twice",
        ),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_a_file_that_is_not_understood_denies_everything_and_says_why(
    text: str, why: str, tmp_path: Path
) -> None:
    path = tmp_path / "access.json"
    path.write_text(text)

    with pytest.raises(AccessError) as caught:
        check(path, "local:ops", "control:rl:pause")

    assert why in str(caught.value)
    assert "so nothing may be changed" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_or_that_everybody_may_write_denies_everything(
    tmp_path: Path,
) -> None:
    path = tmp_path / "access.json"
    with pytest.raises(AccessError, match="No such file"):
        check(path, "local:ops", "control:rl:pause")
    path.write_text(json.dumps({**OPERATOR, "team_mode": False}))
    path.chmod(0o666)

    with pytest.raises(AccessError, match="every user may write to it: run chmod o-w"):
        check(path, "local:ops", "control:rl:pause")


def _like(pattern: str, name: str) -> bool:
    """Say whether a pattern fits, as slowly as it is defined."""
    if not pattern:
        return not name
    if pattern[0] == "*":
        return any(_like(pattern[1:], name[n:]) for n in range(len(name) + 1))
    return bool(name) and name[0] == pattern[0] and _like(pattern[1:], name[1:])
