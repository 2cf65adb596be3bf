"""How each measure of a resource use is named and formatted, and what a task requested of it."""

from collections.abc import Callable
from typing import NamedTuple

from iris.model.host.resources import Resources
from iris.model.units import format_bytes


class Measure(NamedTuple):
    """The name and the format of one measure of resource use."""

    #: The name of the measure in a table of the command line.
    name: str
    #: The name of the measure in a heading.
    title: str
    #: The name of the measure's field in `Measures`.
    field: str
    text: Callable[[float], str]
    #: Returns the requested amount, in the unit of the measure; None if the job requested no
    #: amount, or if jobs cannot request this measure.
    requested: Callable[[Resources], float | None] = lambda _: None


def _cores(percent: float) -> str:
    return f"{percent / 100:.2f}".rstrip("0").rstrip(".")


def _bytes(size: float) -> str:
    return format_bytes(round(size))


def _percent(value: float) -> str:
    return f"{value:.0f}%" if value >= 1 or not value else f"{value:.1f}%"


CORES = Measure(
    "cores", "Cores", "cpu_percent", _cores, lambda asked: asked.cpu_millis / 10 or None
)
MEMORY = Measure(
    "memory", "Memory", "memory_bytes", _bytes, lambda asked: asked.memory_bytes or None
)
GPU = Measure("gpu", "GPU use", "gpu_percent", _percent)
GPU_MEMORY = Measure("gpu memory", "GPU memory", "gpu_memory_bytes", _bytes)
GPUS_IN_USE = Measure(
    "gpus in use",
    "GPUs in use",
    "gpus_in_use",
    lambda count: f"{count:.3g}",
    lambda asked: asked.device_count or None,
)
MEASURES = (CORES, MEMORY, GPU, GPU_MEMORY, GPUS_IN_USE)
