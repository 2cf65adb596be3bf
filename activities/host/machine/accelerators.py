"""Defines the accelerators that a machine has, as the machine itself reports them."""

from pydantic import Field

from iris.model.frozen import Frozen
from iris.model.host import constraints
from iris.model.host.gpus import Gpu, Reading
from iris.model.host.resources import Device


class TpuHost(Frozen):
    """The real TPU chips of a host, and the slice to which they belong. A host with simulated chips
    has no `TpuHost`.
    """

    #: The name of the slice.
    name: str
    #: The type of the slice, such as `v5litepod-16`, as in `iris.model.host.accelerators`.
    variant: str
    worker_id: int = 0
    #: The addresses of the slice's hosts, in the order of their worker ids; empty if they are not
    #: known.
    addresses: tuple[str, ...] = ()
    #: The number of hosts in the slice.
    hosts: int = 1
    #: The number of chips on this host.
    chips: int
    #: The layout of the chips on this host, such as `2,2,1`.
    bounds: str
    #: The layout of all chips in the slice, such as `4x4`.
    topology: str = ""


class Accelerators(Frozen):
    """The accelerators that a machine reports."""

    device: Device | None = None
    #: All GPUs of the machine. If they are of several kinds, `device` names only the most frequent
    #: kind, which is the one that the host offers.
    gpus: tuple[Gpu, ...] = ()
    #: What `nvidia-smi` reported about the GPUs; None if the machine has no GPU driver, has TPUs,
    #: or simulates its accelerators.
    reading: Reading | None = None
    #: The TPU chips and their slice; None if the machine is not a host of a TPU slice.
    tpu: TpuHost | None = None
    #: The attributes of the host, which include the machine's location.
    attributes: dict[str, constraints.Attribute] = Field(default_factory=dict)
