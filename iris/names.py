"""The only file that spells a workflow id, a task queue, a search attribute, a log path or an environment variable."""

import re

from iris.errors import InvalidValue

# -- ids people use ------------------------------------------------------------------------------------------------------------

#: Temporal's SQL stores keep ids in 255 characters; `<cluster>/task/<user>/<name>:<index>` with three such parts stays below 200.
MAX_NAME = 60
_NAME = re.compile(rf"[a-zA-Z0-9][a-zA-Z0-9._-]{{0,{MAX_NAME - 1}}}")


def check_name(field: str, name: str) -> str:
    """The name itself.

    Raises:
        InvalidValue: it is empty, too long, or has a character that a path or an id could trip over.
    """
    if _NAME.fullmatch(name) is None:
        raise InvalidValue(
            field,
            name,
            "is not a name",
            f"use 1 to {MAX_NAME} letters, digits, dots, dashes or underscores, the first a letter or digit",
        )
    return name


def job_id(user: str, name: str) -> str:
    return f"{user}/{name}"


def task_id(job: str, index: int) -> str:
    return f"{job}:{index}"


def attempt_id(job: str, index: int, attempt: int) -> str:
    return f"{job}:{index}@{attempt}"


def gang_attempt_id(job: str, attempt: int) -> str:
    """An attempt of all tasks of a job together."""
    return f"{job}@{attempt}"


def short_run(run_id: str) -> str:
    """Enough of a run's id to be unique for ever: for ids that sort by time, the time and a little more."""
    return run_id[:13]


def attempt_key(attempt: str, run_id: str) -> str:
    """What makes an attempt unique for ever: a job's name may be used again, the id of its run may not."""
    return f"{attempt}/{short_run(run_id)}"


def slice_id(prefix: str, group: str, token: str) -> str:
    """A slice's id: its machines' name, too. Clouds want lower case, digits and dashes.

    Args:
        prefix: what sets this cluster's machines apart where there are others; may be empty.
    """
    return "-".join(re.sub("[^a-z0-9]+", "-", part.lower()).strip("-") for part in (prefix, group, token) if part)


def controller_machine(prefix: str, cluster: str) -> str:
    """The virtual machine of a cluster's control plane. One cluster has one: two cannot have the same name in a zone."""
    return slice_id(prefix, cluster, "controller")


def host_of_slice(slice_id: str, worker: int, hosts: int) -> str:
    """The host of a slice with this worker id; the only one of a slice has the slice's name."""
    return slice_id if hosts == 1 else f"{slice_id}-w-{worker}"


# -- Temporal ------------------------------------------------------------------------------------------------------------------


def job_workflow(cluster: str, job: str) -> str:
    return f"{cluster}/job/{job}"


def task_workflow(cluster: str, task: str) -> str:
    return f"{cluster}/task/{task}"


def slice_workflow(cluster: str, slice_id: str) -> str:
    return f"{cluster}/slice/{slice_id}"


def scheduler_workflow(cluster: str) -> str:
    return f"{cluster}/scheduler"


def autoscaler_workflow(cluster: str) -> str:
    return f"{cluster}/autoscaler"


def job_of_workflow(workflow_id: str) -> str:
    """The job id in the id of a job's workflow."""
    return workflow_id.split("/", 2)[2]


def control_queue(cluster: str) -> str:
    return f"{cluster}/control"


def planner_queue(cluster: str) -> str:
    return f"{cluster}/planner"


def host_queue(cluster: str, host_id: str) -> str:
    return f"{cluster}/host/{host_id}"


def host_of_queue(cluster: str, queue: str) -> str | None:
    """The host a task queue belongs to, or None when it is not a host's queue of this cluster."""
    prefix = host_queue(cluster, "")
    return queue.removeprefix(prefix) if queue.startswith(prefix) else None


def worker_identity(host_id: str, incarnation: str) -> str:
    return f"{host_id}@{incarnation}"


def incarnation_of(identity: str) -> str:
    return identity.rpartition("@")[2]


SA_CLUSTER = "IrisCluster"
SA_KIND = "IrisKind"
SA_STATE = "IrisState"
SA_USER = "IrisUser"
SA_PARENT = "IrisParent"
SA_GROUP = "IrisGroup"
SA_PRIORITY = "IrisPriority"
SEARCH_ATTRIBUTES = (SA_CLUSTER, SA_KIND, SA_STATE, SA_USER, SA_PARENT, SA_GROUP, SA_PRIORITY)

KIND_JOB = "job"
KIND_TASK = "task"
KIND_SLICE = "slice"
KIND_SCHEDULER = "scheduler"
KIND_AUTOSCALER = "autoscaler"

#: Memo of the scheduler's workflow: what a client that knows only an address needs to know about the cluster.
MEMO_STORE = "iris_store"
MEMO_UI = "iris_ui"
#: How its book is kept; a control plane that keeps it otherwise starts another scheduler, which calls the roll.
MEMO_BOOK = "iris_book"
#: Memo of a job's workflow: its command line, for lists, and how many tasks it has, for readers of its logs.
MEMO_COMMAND = "iris_command"
MEMO_TASKS = "iris_tasks"

# -- object store --------------------------------------------------------------------------------------------------------------


def cluster_uid(cluster: str) -> str:
    """What tells the cluster's machines from those of another of its name."""
    return f"clusters/{cluster}/uid"


def job_logs(job: str, run_id: str) -> str:
    return f"logs/{job}/{short_run(run_id)}"


def attempt_logs(job: str, run_id: str, index: int, attempt: int) -> str:
    return f"{job_logs(job, run_id)}/{index}/{attempt}"


def log_chunk(prefix: str, sequence: int) -> str:
    """Ten digits, so that names sort as their numbers do."""
    return f"{prefix}/{sequence:010d}.log"


def bundle(sha256: str) -> str:
    return f"bundles/{sha256}.tar.gz"


def attempt_outputs(job: str, run_id: str, index: int, attempt: int) -> str:
    return f"{job_outputs(job, run_id)}/{index}/{attempt}"


def job_outputs(job: str, run_id: str) -> str:
    return f"outputs/{job}/{short_run(run_id)}"


def agent_logs(cluster: str, host_id: str) -> str:
    """Below it every life of the agent's process has a folder that sorts by its time."""
    return f"agents/{cluster}/{host_id}"


def exec_files(session: str) -> str:
    """What goes in and out of a command that is run beside a task."""
    return f"exec/{session}"


# -- environment variables -----------------------------------------------------------------------------------------------------

ENV_CLUSTER = "IRIS_CLUSTER"
ENV_STATE_DIR = "IRIS_STATE_DIR"
ENV_USER = "IRIS_USER"
ENV_JOB_ID = "IRIS_JOB_ID"
ENV_TASK_ID = "IRIS_TASK_ID"
ENV_TASK_INDEX = "IRIS_TASK_INDEX"
ENV_NUM_TASKS = "IRIS_NUM_TASKS"
ENV_ATTEMPT = "IRIS_ATTEMPT"
#: On every process of an attempt: how leftovers are recognised whatever session or group they moved to.
ENV_ATTEMPT_KEY = "IRIS_ATTEMPT_KEY"
ENV_HOST_ID = "IRIS_HOST_ID"
ENV_SLICE_ID = "IRIS_SLICE_ID"
#: What the program leaves in this directory is kept, and fetched with `iris fetch`.
ENV_OUTPUT_DIR = "IRIS_OUTPUT_DIR"
#: The directory that the program starts in.
ENV_WORKDIR = "IRIS_WORKDIR"
#: Where other hosts reach this one.
ENV_HOST_ADDRESS = "IRIS_HOST_ADDRESS"
#: Of members of a gang: `host:port` on the host of task 0, and where in the gang the task stands.
ENV_COORDINATOR = "IRIS_COORDINATOR_ADDRESS"
ENV_SLICE_INDEX = "IRIS_SLICE_INDEX"
ENV_NUM_SLICES = "IRIS_NUM_SLICES"
ENV_TASKS_PER_SLICE = "IRIS_TASKS_PER_SLICE"
#: What a user may not set for a job, because Iris does.
RESERVED_PREFIX = "IRIS_"


def env_port(name: str) -> str:
    """Where the program finds the port of this name."""
    return f"IRIS_PORT_{re.sub('[^A-Z0-9]', '_', name.upper())}"


# Of members of a gang, in the words of others: unlike the above, what a job sets here itself counts.
ENV_JAX_COORDINATOR = "JAX_COORDINATOR_ADDRESS"
ENV_JAX_NUM_PROCESSES = "JAX_NUM_PROCESSES"
ENV_JAX_PROCESS_ID = "JAX_PROCESS_ID"
ENV_TPU_NAME = "TPU_NAME"
ENV_TPU_WORKER_ID = "TPU_WORKER_ID"
ENV_TPU_TOPOLOGY = "TPU_TOPOLOGY"
ENV_TPU_TYPE = "TPU_ACCELERATOR_TYPE"
