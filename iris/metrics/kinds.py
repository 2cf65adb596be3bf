"""The kinds of metrics: counters, histograms and gauges. They store nothing until the process
serves metrics (`page.py`), and this module does not import the library that stores them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import prometheus_client


class Part(StrEnum):
    """A part of Iris that serves metrics."""

    CONTROL_PLANE = "control plane"
    AGENT = "agent"


@dataclass(eq=False)
class Metric:
    """The base class of all kinds of metrics.

    Args:
        part: the part of Iris whose page has the metric.
        name: the name by the conventions of Prometheus.
        help: one sentence about the metric.
        labels: the names of the labels. Each label has a bounded number of values, because values
            come from code or from the configuration of the cluster, never from a job.
    """

    part: Part
    name: str
    help: str
    labels: tuple[str, ...] = ()


@dataclass(eq=False)
class Counter(Metric):
    """A number of events since the process began to serve metrics."""

    stored: "prometheus_client.Counter | None" = field(default=None, init=False)

    def add(self, *labels: str, amount: float = 1) -> None:
        """Adds to the number with these values of the labels."""
        if self.stored is not None:
            (self.stored.labels(*labels) if labels else self.stored).inc(amount)


@dataclass(eq=False)
class Histogram(Metric):
    """The distribution of measured values.

    Args:
        buckets: the upper bounds of the buckets.
    """

    buckets: Sequence[float] = ()
    stored: "prometheus_client.Histogram | None" = field(default=None, init=False)

    def add(self, value: float, *labels: str) -> None:
        """Adds a value to those with these values of the labels."""
        if self.stored is not None:
            (self.stored.labels(*labels) if labels else self.stored).observe(value)


@dataclass(eq=False)
class Gauge(Metric):
    """A metric whose values are gathered at an interval. Each gathering replaces all values, so the
    value of a deleted object disappears.
    """

    #: The values of the metric, by the values of its labels. The mapping is replaced and never
    #: changed, because another thread may read it.
    values: Mapping[tuple[str, ...], float] = field(default_factory=dict, init=False)

    def show(self, values: Mapping[tuple[str, ...], float]) -> None:
        """Replaces all values."""
        self.values = dict(values)

    def show_one(self, value: float) -> None:
        """Replaces the value of a metric without labels."""
        self.values = {(): value}

    def clear(self) -> None:
        """Removes all values, because they are not known any more."""
        self.values = {}
