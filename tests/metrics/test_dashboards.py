"""The dashboard and the alert rules use metrics that exist, and each alert names what to do."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from iris.metrics.declared import METRICS
from iris.metrics.kinds import Histogram, Metric

ROOT = Path(__file__).parents[2]
RULES = yaml.safe_load((ROOT / "docs/grafana/alerts.yaml").read_text())
DASHBOARD = json.loads((ROOT / "docs/grafana/iris.json").read_text())
ALERTS = [rule for group in RULES["groups"] for rule in group["rules"]]


def expressions() -> Iterator[str]:
    yield from (alert["expr"] for alert in ALERTS)
    for panel in DASHBOARD["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))


def series(metric: Metric) -> list[str]:
    """The names under which Prometheus stores a metric."""
    ends = ("_bucket", "_sum", "_count") if isinstance(metric, Histogram) else ("",)
    return [f"{metric.name}{end}" for end in ends]


def test_every_expression_uses_metrics_and_labels_that_exist() -> None:
    """A typing error gives an empty panel, or an alert that never fires."""
    labels = {name: {*each.labels, "le"} for each in METRICS for name in series(each)}
    for expression in expressions():
        for name, matchers in re.findall(r"\b(iris_[a-z_]+)(?:\{([^}]*)\})?", expression):
            assert name in labels, expression
            assert {*re.findall(r"(\w+)[=!]~?=?\"", matchers)} <= labels[name], expression


def test_the_values_of_labels_in_expressions_exist() -> None:
    """A reason or an availability that is renamed must be renamed there, too."""
    known = " ".join(path.read_text() for path in (ROOT / "iris").rglob("*.py"))
    for expression in expressions():
        for value in re.findall(r"[A-Z_]{4,}", re.sub(r"\$\{.*?\}", "", expression)):
            assert re.search(rf'= "{value}"', known), value


def slug(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-")


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_an_alert_names_the_section_that_says_what_to_do(alert: dict[str, Any]) -> None:
    """It wakes a person who has never seen it."""
    page, _, section = alert["annotations"]["page"].partition("#")
    headings = re.findall(r"^#+ (.*)$", (ROOT / page).read_text(), re.MULTILINE)
    assert section == slug(alert["alert"])
    assert section in map(slug, headings)
    assert alert["annotations"]["summary"]
    assert alert["labels"]["severity"] in ("warning", "critical")
    assert alert["for"]
