"""What operators are given to watch a fleet asks for metrics that exist, and says what to do."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from bernstein_formats.errors import BY_REASON
from bernstein_runtime.metrics import TABLE, Kind

TOP = Path(__file__).parents[2]
DASHBOARD = json.loads((TOP / "deploy/grafana/dashboard.json").read_text())
RULES = [
    rule
    for group in yaml.safe_load((TOP / "deploy/prometheus/alerts.yml").read_text())["groups"]
    for rule in group["rules"]
]
# Of Prometheus itself and of its library.
OTHERS = {"up": ("job", "instance"), "process_resident_memory_bytes": ("job", "instance")}


def samples() -> dict[str, tuple[str, ...]]:
    """Each name that can be asked for, and its labels."""
    found: dict[str, tuple[str, ...]] = dict(OTHERS)
    for metric in TABLE:
        labels = (*metric.labels, "job", "instance")
        if metric.kind is Kind.HISTOGRAM:
            found[f"{metric.name}_bucket"] = (*labels, "le")
        else:
            found[metric.name] = labels
    return found


def panels() -> Iterator[dict[str, Any]]:
    yield from (each for each in DASHBOARD["panels"] if each["type"] != "row")


def expressions() -> list[str]:
    shown = [target["expr"] for panel in panels() for target in panel["targets"]]
    return shown + [rule["expr"] for rule in RULES]


def selectors(text: str) -> list[Any]:
    found: list[Any] = []

    def look(node: Any) -> bool:
        if isinstance(node, promql_parser.VectorSelector):
            found.append(node)
        return True

    promql_parser.walk(promql_parser.parse(text), look)
    return found


@pytest.mark.parametrize("text", sorted(set(expressions())))
def test_each_query_asks_for_metrics_and_labels_that_exist(text: str) -> None:
    known = samples()
    asked = selectors(text)

    assert asked
    for each in asked:
        assert each.name in known
        for matcher in each.matchers.matchers:
            assert matcher.name in known[each.name]
    grouped = {
        name.strip() for group in re.findall(r"by \(([^)]*)\)", text) for name in group.split(",")
    }
    assert grouped <= {label for each in asked for label in known[each.name]}


def test_each_metric_is_on_the_dashboard() -> None:
    shown = {each.name for text in expressions() for each in selectors(text)}

    assert samples().keys() - shown == set()


def test_reasons_in_alerts_are_reason_words() -> None:
    texts = [rule["expr"] for rule in RULES]
    words = {
        word
        for text in texts
        for group in re.findall(r'reason=~?"([^"]*)"', text)
        for word in group.split("|")
    }

    assert words
    assert words - {"INTERNAL"} <= BY_REASON.keys()


def test_each_alert_pages_and_has_its_section_in_the_runbook() -> None:
    page = (TOP / "docs/operations.md").read_text()
    alerts = page.partition("\n## Alerts\n")[2].partition("\n## ")[0]
    headings = re.findall(r"^### (\S+)$", alerts, re.MULTILINE)

    assert [rule["alert"] for rule in RULES] == headings
    for rule in RULES:
        assert rule["labels"] == {"severity": "page"}
        assert rule["annotations"]["summary"].endswith(".")
        assert rule["annotations"]["runbook"] == f"docs/operations.md#{rule['alert'].lower()}"


def test_labels_in_texts_are_labels_of_what_is_asked() -> None:
    for rule in RULES:
        named = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        have = {name for each in selectors(rule["expr"]) for name in samples()[each.name]}
        assert named <= have, rule["alert"]


def test_panels_have_places_of_their_own() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
