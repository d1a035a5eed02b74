"""The rules that are shipped for Prometheus ask for metrics that there are."""

import re
from pathlib import Path

import pytest

from tau_live.core.reasons import WhyNot
from tau_live.operate.alert_rules import ALERTS
from tau_live.operate.metrics import known_families

RULES = Path(__file__).parents[2] / "docs/examples/prometheus-rules.yml"
EXPRESSIONS = re.findall(r"^ +expr: (.+)$", RULES.read_text(), re.MULTILINE)
METRICS = {family.name for family in known_families()}


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_each_rule_asks_for_metrics_that_are_exported(expression: str) -> None:
    names = set(re.findall(r"tau_live_\w+", expression))

    assert names
    assert names <= METRICS


def test_reasons_and_kinds_in_rules_are_those_that_there_are() -> None:
    text = "\n".join(EXPRESSIONS)

    assert re.findall(r'left_out\{reason="([^"]+)"', text) == [WhyNot.REWARD_MISSING.value]
    assert set(re.findall(r'kind="([^"]+)"', text)) <= set(ALERTS)


def test_each_rule_names_an_alert_of_the_runbook_at_its_severity() -> None:
    rules = re.split(r"^ +- alert: ", RULES.read_text(), flags=re.MULTILINE)[1:]

    for rule in rules:
        severity = re.search(r"severity: (\w+)", rule)
        runbook = re.search(r"runbook: (\S+)", rule)
        assert severity is not None
        if runbook is not None:
            assert ALERTS[runbook[1]].severity == severity[1], rule  # type: ignore[index]
    assert len(rules) == len(EXPRESSIONS)
