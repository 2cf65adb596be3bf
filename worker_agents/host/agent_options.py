"""The options of an agent, from its command line or its slice."""

from datetime import timedelta
from pathlib import Path

from pydantic import Field

from iris.activities.host.machine.gpu_health import CHECK_INTERVAL
from iris.model.frozen import Frozen
from iris.model.host.constraints import Attribute
from iris.model.host.faults import Fault
from iris.model.host.resources import Device
from iris.model.host.store_limits import StoreLimits


class AgentOptions(Frozen):
    """The options of an agent."""

    #: The address of the Temporal service.
    address: str
    namespace: str
    cluster: str
    store: str
    host_id: str
    #: None: the host is a slice by itself.
    slice_id: str | None = None
    #: The private key of the slice, on a machine that was created for it; None: a user brought the
    #: machine, which starts the slice.
    slice_key: str | None = None
    #: The file with the slice's private key.
    key_file: Path | None = None
    #: The number of the slice's hosts.
    slice_size: int = 1
    #: The address at which other hosts reach this one; None: the agent finds it.
    host_address: str | None = None
    directory: Path
    #: The cache of bundles and environments; None: in the directory. Hosts on one machine may share
    #: it.
    cache_dir: Path | None = None
    #: The uids of tasks that run as processes, as `iris.model.host.run_as` reads them.
    run_as: str = ""
    #: The directory for the files of tasks with uids of their own. All agents of a machine should
    #: share it.
    jobs_dir: Path = Path("/var/lib/iris-jobs")
    #: The container image of tasks that name none; None: they run as processes.
    image: str | None = None
    #: Tasks whose image is not named by digest are refused.
    require_digests: bool = False
    #: Directories of the host that every task's container gets.
    mounts: tuple[Path, ...] = ()
    #: Defaults for every task's environment; a job may override them.
    env_vars: dict[str, str] = Field(default_factory=dict)
    #: What an attempt may store.
    limits: StoreLimits = StoreLimits()
    #: The secrets that jobs may use, as in `iris.model.job.secrets.why_not`.
    secrets: tuple[str, ...] = ()
    #: The project of secrets in Google Secret Manager that name none, and the address of its
    #: interface; empty: Google's own.
    secrets_project: str = ""
    secrets_endpoint: str = ""
    #: The interval between two checks of the GPUs.
    gpu_check: timedelta = CHECK_INTERVAL
    #: The host is simulated: the real machine's hardware does not belong to it.
    simulated: bool = False
    #: The umask of users' programs; -1: the agent's.
    umask: int = -1
    cpu_millis: int | None = None
    memory_bytes: int | None = None
    disk_bytes: int | None = None
    device: Device | None = None
    attributes: dict[str, Attribute] = Field(default_factory=dict)
    accept_cpu_jobs: bool = False
    #: Faults that are recognised in addition to Iris' own.
    faults: tuple[Fault, ...] = ()
