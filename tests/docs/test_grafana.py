"""The dashboard that is shipped for Grafana, and what Prometheus' own tool says of what we ship."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tau_live.operate.metrics import known_families

EXAMPLES = Path(__file__).parents[2] / "docs/examples"
DASHBOARD: dict[str, Any] = json.loads((EXAMPLES / "grafana-dashboard.json").read_text())
METRICS = {family.name for family in known_families()}


def expressions() -> Iterator[str]:
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"]


def test_every_metric_is_shown_and_no_other_is_asked_for() -> None:
    asked = {name for text in expressions() for name in re.findall(r"tau_live_\w+", text)}

    assert asked == METRICS


def test_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    panels = DASHBOARD["panels"]
    cells = [
        (x, y)
        for panel in panels
        for at in (panel["gridPos"],)
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]

    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len(set(cells)) == len(cells)
    assert {x for x, _ in cells} == {*range(24)}


def test_each_variable_that_is_used_is_declared() -> None:
    declared = {variable["name"] for variable in DASHBOARD["templating"]["list"]}

    assert {name for text in expressions() for name in re.findall(r"\$(\w+)", text)} <= declared


def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not installed")
    return found


def test_prometheus_reads_the_rules() -> None:
    rules = EXAMPLES / "prometheus-rules.yml"
    subprocess.run([promtool(), "check", "rules", rules], check=True, capture_output=True)


def test_prometheus_reads_every_query_of_the_dashboard(tmp_path: Path) -> None:
    rules = [
        {"record": f"shown:{number}", "expr": re.sub(r"\$\w+", ".*", text)}
        for number, text in enumerate(expressions())
    ]
    file = tmp_path / "rules.yml"  # JSON is YAML
    file.write_text(json.dumps({"groups": [{"name": "shown", "rules": rules}]}))

    subprocess.run([promtool(), "check", "rules", file], check=True, capture_output=True)
