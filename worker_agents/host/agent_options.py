"""The options of an agent, from its command line or its slice."""

from datetime import timedelta
from pathlib import Path

from pydantic import Field

from iris.activities.host.machine.gpu_health import CHECK_INTERVAL
from iris.metrics.serve import Listen
from iris.model.frozen import Frozen
from iris.model.host.constraints import Attribute
from iris.model.host.faults import Fault
from iris.model.host.resources import Device
from iris.model.host.store_limits import StoreLimits

#: The default directory for the files of tasks with uids of their own.
JOBS_DIR = Path("/var/lib/iris-jobs")


class TaskSettings(Frozen):
    """The settings of the tasks on a host, from the configuration of the cluster."""

    #: The uids for tasks that run as processes, as `FIRST-LAST`; `root`: the agent's own user.
    #: Empty: default uids; but the agent's own user on a simulated host, or if the agent may not
    #: start processes as other users, for example because it is not root.
    run_as: str = ""
    #: True if a task whose image is not named by digest is refused.
    require_digests: bool = False
    #: The directories of the host that are mounted into every task's container.
    mounts: tuple[Path, ...] = ()
    #: The default variables of every task's environment. A job may set them to other values.
    env_vars: dict[str, str] = Field(default_factory=dict)
    #: The limits on what one attempt may store.
    limits: StoreLimits = StoreLimits()
    #: The references of the secrets that jobs may use. A reference that ends with `*` allows all
    #: secrets whose references begin with the text before it. Empty: no secrets.
    secrets: tuple[str, ...] = ()
    #: The Google Cloud project of secrets whose name contains no project; empty for the project of
    #: the machine's credentials.
    secrets_project: str = ""
    #: The address of the Secret Manager service; empty for the default endpoint of Google Cloud.
    secrets_endpoint: str = ""


class AgentOptions(Frozen):
    """The options of a host agent."""

    #: The address of the Temporal service.
    address: str
    namespace: str
    cluster: str
    store: str
    host_id: str
    #: The slice to which the host belongs; None if the host is a slice of its own.
    slice_id: str | None = None
    #: The private key of the slice, if the machine was created for the slice; None if a user
    #: brought the machine. A machine that a user brought starts its slice itself.
    slice_key: str | None = None
    #: The delegation of the slice's key (`iris.access.tokens`), with which Temporal's servers
    #: accept the host's tokens; empty if the cluster does not use tokens.
    delegation: str = ""
    #: The file with the slice's private key.
    key_file: Path | None = None
    #: The number of hosts in the slice.
    slice_size: int = 1
    #: The address at which other hosts reach this host; None if the agent must find it.
    host_address: str | None = None
    directory: Path
    #: The directory of the caches of bundles and environments; None to put the caches into
    #: `directory`. Hosts on one machine may share it.
    cache_dir: Path | None = None
    tasks: TaskSettings = TaskSettings()
    #: The directory for the files of tasks with uids of their own. All agents of a machine should
    #: share it.
    jobs_dir: Path = JOBS_DIR
    #: The container image of tasks that do not name an image. If it is None, such tasks run as
    #: processes.
    image: str | None = None
    #: The port and the address at which the agent serves its metrics.
    metrics: Listen = Listen()
    #: The interval between two checks of the GPUs.
    gpu_check: timedelta = CHECK_INTERVAL
    #: True if the host is simulated. The hardware of the real machine does not belong to a
    #: simulated host.
    simulated: bool = False
    #: The umask of users' programs; -1 for the agent's umask.
    umask: int = -1
    cpu_millis: int | None = None
    memory_bytes: int | None = None
    disk_bytes: int | None = None
    device: Device | None = None
    attributes: dict[str, Attribute] = Field(default_factory=dict)
    accept_cpu_jobs: bool = False
    #: The host failures that the configuration adds to those that Iris recognises in the output of
    #: failed programs.
    faults: tuple[Fault, ...] = ()
