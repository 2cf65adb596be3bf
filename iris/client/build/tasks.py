"""Decides how many tasks a job has, which devices they get, and which of them start together."""

from dataclasses import dataclass
from typing import NamedTuple

from iris.client.build.conflicts import excludes, needs
from iris.model.errors import InvalidValue
from iris.model.host.accelerators import TpuRequest, format_gpu
from iris.model.host.constraints import TPU_NAME
from iris.model.host.resources import Device
from iris.model.job.arrays import Array
from iris.model.job.spec import Coscheduling


@dataclass(frozen=True, kw_only=True)
class TaskOptions:
    """The options that decide the number and the devices of a job's tasks. An option that was not
    given is None.
    """

    tpu: TpuRequest | None = None
    gpu: Device | None = None
    device: Device | None = None
    #: The number of TPU slices of the job. If it is None, the job has as many slices as its
    #: `replicas` fill, or one slice if `replicas` is None, too.
    slices: int | None = None
    replicas: int | None = None
    array: Array | None = None
    #: The attribute that must be equal on all hosts of a gang.
    gang_by: str | None = None
    tasks_per_host: int | None = None


class Tasks(NamedTuple):
    """The number of a job's tasks, their device, and the rule by which they start together."""

    #: The device of each task. None if the tasks need no device.
    device: Device | None
    number: int
    #: The rule by which the tasks start together. None if each task starts by itself.
    coscheduling: Coscheduling | None


def tasks_of(options: TaskOptions) -> Tasks:
    """Returns the tasks that the options ask for.

    Raises:
        OptionConflict: options exclude each other, or one needs another.
        InvalidValue: the tasks do not fill the TPU slices.
    """
    device = _device(options)
    if options.array is not None:
        _check_array(options)
        return Tasks(device, options.array.size, None)
    if options.tpu is not None:
        number, together = _on_slices(options.tpu, options)
        return Tasks(device, number, together)
    if options.slices is not None:
        raise needs("slices", options.slices, "tpu", "the type of the slices")
    return Tasks(device, 1 if options.replicas is None else options.replicas, _gang(options))


def _device(options: TaskOptions) -> Device | None:
    tpu, gpu, device = options.tpu, options.gpu, options.device
    why = "a task has devices of one kind"
    if tpu is not None and (gpu or device) is not None:
        raise excludes("tpu", tpu.device.variant, "gpu" if gpu is not None else "device", why)
    if gpu is not None and device is not None:
        raise excludes("gpu", format_gpu(gpu), "device", why)
    return tpu.device if tpu is not None else gpu or device


def _check_array(options: TaskOptions) -> None:
    """Raises an `OptionConflict` if an option does not go with `array`."""
    array = options.array.indices if options.array is not None else ""
    if options.replicas is not None:
        raise excludes("array", array, "replicas", "an array has a task for each index or row")
    for name in ("gang_by", "tasks_per_host", "slices"):
        if getattr(options, name) is not None:
            raise excludes("array", array, name, "the tasks of an array start one by one")
    if (tpu := options.tpu) is not None and tpu.hosts > 1:
        raise excludes(
            "array",
            array,
            f"tpu {tpu.device.variant}",
            f"each task of an array has one host, and a slice of this type has {tpu.hosts}; submit"
            " one job for each value, for example with --batch",
        )


def _on_slices(tpu: TpuRequest, options: TaskOptions) -> tuple[int, Coscheduling | None]:
    """Returns the number of tasks on TPU slices, one for each host, and how they start together."""
    if options.tasks_per_host is not None:
        why = "a task with a TPU has all chips of its host"
        raise excludes("tasks_per_host", options.tasks_per_host, "tpu", why)
    if options.gang_by is not None:
        why = "tasks with a TPU are placed together by slice"
        raise excludes("gang_by", options.gang_by, "tpu", why)
    slices, replicas = options.slices, options.replicas
    if tpu.hosts == 1 and slices is None:  # each task has its own slice, independently
        return 1 if replicas is None else replicas, None
    if replicas is not None and (
        replicas % tpu.hosts or (slices is not None and replicas != slices * tpu.hosts)
    ):
        which = "a slice" if slices is None else f"{slices} slices"
        raise InvalidValue(
            "replicas",
            replicas,
            f"does not give one task to each host of {which} of {tpu.hosts} hosts",
            "leave it out, and use --slices N for more than one slice",
        )
    if slices is not None and slices < 1:
        raise InvalidValue("slices", slices, "is not a valid number of slices", "write 1 or more")
    groups = slices or (1 if replicas is None else replicas // tpu.hosts)
    return tpu.hosts * groups, Coscheduling(group_by=TPU_NAME, groups=groups)


def _gang(options: TaskOptions) -> Coscheduling | None:
    each = options.tasks_per_host
    if options.gang_by is None:
        if each is not None:
            what = "the attribute that the gang's hosts share"
            raise needs("tasks_per_host", each, "gang_by", what)
        return None
    return Coscheduling(group_by=options.gang_by, tasks_per_host=1 if each is None else each)
