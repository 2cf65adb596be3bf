"""The metrics keep the conventions of Prometheus, and the documentation lists all of them."""

import re
from pathlib import Path

import pytest

from iris.metrics.declared import METRICS
from iris.metrics.kinds import Counter, Gauge, Histogram, Metric

PAGE = Path(__file__).parents[2] / "docs/metrics.md"
#: The labels that metrics may have. The values of each are bounded: they come from code or from the
#: configuration of the cluster.
BOUNDED = {
    *("band", "reason", "delivery", "planner", "failure", "group", "state", "zone"),
    *("availability", "call", "outcome", "urgency", "answer", "fault", "cause", "result"),
    "directory",
}
#: The ends of the names of values that have a unit. `looks` is the unit of the scheduler's work.
UNITS = ("_seconds", "_bytes", "_looks")


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_metric_is_named_by_the_conventions(metric: Metric) -> None:
    """Operators and dashboards read the unit and the kind from the name."""
    assert re.fullmatch(r"iris_[a-z]+(_[a-z]+)*", metric.name)
    assert metric.name.endswith("_total") is isinstance(metric, Counter)
    assert not re.search("milli|micro|minutes|mib|gib|percent", metric.name)
    if "duration" in metric.name or "left" in metric.name:
        assert metric.name.endswith("_seconds")
    if re.search("size|disk|backlog|ledger", metric.name):
        assert metric.name.endswith("_bytes")
    assert metric.help.endswith(".")
    assert set(metric.labels) <= BOUNDED
    if isinstance(metric, Histogram):
        assert list(metric.buckets) == sorted(metric.buckets) != []


def test_no_two_metrics_have_one_name() -> None:
    """One page would have both."""
    assert len({metric.name for metric in METRICS}) == len(METRICS)


def written(metric: Metric) -> str:
    kind = {Counter: "counter", Gauge: "gauge", Histogram: "histogram"}[type(metric)]
    labels = ", ".join(f"`{label}`" for label in metric.labels) or "–"
    meaning = metric.help.replace("docs/reference/reasons.md", "[list](reference/reasons.md)")
    return f"| `{metric.name}` | {kind} | {labels} | {meaning} |"


def test_the_page_lists_every_metric_with_its_labels_and_meaning() -> None:
    """In the order of their declaration, in the table of their part."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| `iris_")]
    assert lines == [written(metric) for metric in METRICS]
