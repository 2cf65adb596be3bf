"""What a job used, against what it requested, and smaller requests that would do. Pure."""

from collections.abc import Iterable, Sequence

from iris.model.frozen import Frozen
from iris.model.host.resources import Device, DeviceKind, Resources
from iris.model.units import GIB, MIB, format_bytes, format_cpu
from iris.usage.series import Measures, Series

#: How long at least one attempt must have run before Iris suggests smaller requests, in seconds.
#: The beginning of a program says little about its later use.
LEAST_SECONDS = 300.0
#: The smallest ratio of a suggested request to the measured peak. The next run may need more, and
#: samples can miss a short peak.
MARGIN = 1.25
#: The requests for memory, in bytes, and for cores, in thousandths, up to which Iris does not
#: suggest a smaller request. These are the default requests.
LEAST_MEMORY, LEAST_CPU = GIB, 1000


class TaskUse(Frozen):
    """The measured use of one task's latest measured attempt."""

    task: int
    attempt: int
    series: Series


class Advice(Frozen):
    """A suggestion to request less of one resource."""

    #: The name of the resource: `memory`, `cpu` or `gpu`.
    resource: str
    #: The option of `iris submit` with the suggested request: `--memory 4g`.
    option: str
    #: A text about the used and the requested amount: `peak memory 3.1 GiB of 16 GiB requested`.
    facts: str

    def __str__(self) -> str:
        return f"{self.facts}: {self.option} would do"


class JobUse(Frozen):
    """The measured use of a job's tasks, each with its own series."""

    job: str
    #: The resources that each task requested.
    requested: Resources
    #: The tasks that were measured, in the order of their indices.
    tasks: tuple[TaskUse, ...] = ()
    #: The number of tasks that were not measured, because they did not start or ran for only a few
    #: seconds.
    unmeasured: int = 0
    #: The number of tasks whose use was not read, because the array has too many tasks.
    unread: int = 0

    @property
    def whole(self) -> Measures:
        """The peaks of all tasks, and the means over the time of all tasks."""
        return joined(each.series.whole for each in self.tasks)

    @property
    def advice(self) -> tuple[Advice, ...]:
        """The smaller requests that would do."""
        return advice(self.requested, [each.series for each in self.tasks])


def joined(several: Iterable[Measures]) -> Measures:
    """Returns the values of several tasks together: the peaks, and the means over all their
    time.
    """
    found = Measures()
    for each in several:
        found = found.joined(each)
    return found


def most_used(tasks: Sequence[TaskUse]) -> list[TaskUse]:
    """Returns the tasks with the most memory at one time first."""

    def peak(task: TaskUse) -> float:
        memory = task.series.whole.memory_bytes
        return 0.0 if memory is None else memory.peak

    return sorted(tasks, key=lambda each: (-peak(each), each.task))


def advice(requested: Resources, measured: Sequence[Series]) -> tuple[Advice, ...]:
    """Returns the resources of which half of the request or less would do.

    The tasks on TPU slices have their hosts alone, and chips cannot be divided, so there is none
    for them.

    Args:
        requested: what each task requested.
        measured: the series of the tasks.
    """
    device = requested.device
    is_long = any(each.seconds >= LEAST_SECONDS for each in measured)
    if not is_long or (device is not None and device.kind is DeviceKind.TPU):
        return ()
    whole = joined(each.whole for each in measured)
    found = (
        _less_memory(requested.memory_bytes, whole),
        _fewer_cores(requested.cpu_millis, whole),
        _fewer_gpus(device, whole),
    )
    return tuple(each for each in found if each is not None)


def _less_memory(requested: int, whole: Measures) -> Advice | None:
    if requested <= LEAST_MEMORY or whole.memory_bytes is None:
        return None
    peak = round(whole.memory_bytes.peak)
    needed = peak * MARGIN
    unit, letter = (GIB, "g") if needed > GIB else (128 * MIB, "")
    steps = max(1, -int(-needed // unit))
    if 2 * steps * unit > requested:
        return None
    option = f"--memory {steps}{letter}" if letter else f"--memory {128 * steps}m"
    facts = f"peak memory {format_bytes(peak)} of {format_bytes(requested)} requested"
    return Advice(resource="memory", option=option, facts=facts)


def _fewer_cores(requested: int, whole: Measures) -> Advice | None:
    if requested <= LEAST_CPU or whole.cpu_percent is None:
        return None
    peak = round(10 * whole.cpu_percent.peak)
    unit = 1000 if peak * MARGIN > 500 else 500
    suggested = max(unit, -int(-peak * MARGIN // unit) * unit)
    if 2 * suggested > requested:
        return None
    facts = f"peak use {format_cpu(round(peak, -1))} of {format_cpu(requested)} cores requested"
    return Advice(resource="cpu", option=f"--cpu {format_cpu(suggested)}", facts=facts)


def _fewer_gpus(device: Device | None, whole: Measures) -> Advice | None:
    if device is None or whole.gpus_in_use is None:
        return None
    most = round(whole.gpus_in_use.peak)
    suggested = 1
    while suggested < most:
        suggested *= 2
    if 2 * suggested > device.count:
        return None
    which = f"{suggested}" if device.several else f"{device.variant}x{suggested}"
    facts = f"at most {most} of {device.count} GPUs were in use at a time"
    return Advice(resource="gpu", option=f"--gpu {which}", facts=facts)
