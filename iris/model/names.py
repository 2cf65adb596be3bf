"""Spells all names: workflow ids, task queues, search attributes and environment variables. The
paths in the object store are in `store_paths`. No other file spells any of them.
"""

import re
from collections.abc import Sequence

from iris.model.errors import InvalidValue

# -- ids that people use -------------------------------------------------------------------------

#: The limit on characters of a name. Temporal's SQL stores keep ids in 255 characters.
#: `<cluster>/task/<user>/<name>:<index>` with three names of this length stays below 200.
MAX_NAME = 60
#: The limit on characters of a job's id, which contains the names of all its parent jobs:
#: `<cluster>/task/<user>/<name>/<child>:<index>` stays below 240.
MAX_JOB_ID = 160
_NAME = re.compile(rf"[a-zA-Z0-9][a-zA-Z0-9._-]{{0,{MAX_NAME - 1}}}")
#: The prefix of the name under which a host proves who it is, and of its name in a policy. The
#: host's id follows.
HOST_PREFIX = "host/"


def is_name(name: str) -> bool:
    """Returns whether a cluster or a job can have this name: it is safe in a path, an id and a
    query.
    """
    return _NAME.fullmatch(name) is not None


def check_name(field: str, name: str) -> str:
    """Returns the name unchanged.

    Raises:
        InvalidValue: the name is empty, too long, or has a character that is not safe in a path or
            an id.
    """
    if not is_name(name):
        raise InvalidValue(
            field,
            name,
            "is not a valid name",
            f"use 1 to {MAX_NAME} letters, digits, dots, dashes or underscores, the first a letter"
            " or digit",
        )
    return name


def job_id(user: str, name: str) -> str:
    return f"{user}/{name}"


def child_id(parent: str, name: str) -> str:
    """Returns the id of a child job: `user/parent/child`."""
    return f"{parent}/{name}"


def parent_id(job: str) -> str | None:
    """Returns the id of a job's parent job, or None if the job has no parent."""
    parent = job.rpartition("/")[0]
    return parent if "/" in parent else None


def root_id(job: str) -> str:
    """Returns the id of the topmost ancestor of a job; the job's own id if it has no parent."""
    return "/".join(job.split("/")[:2])


def task_id(job: str, index: int) -> str:
    return f"{job}:{index}"


def attempt_id(job: str, index: int, attempt: int) -> str:
    return f"{job}:{index}@{attempt}"


def gang_attempt_id(job: str, attempt: int) -> str:
    """Returns the id of an attempt of a gang, which all tasks of the job share."""
    return f"{job}@{attempt}"


def short_run(run_id: str) -> str:
    """Returns the first 13 characters of a run id, which are enough to identify it. In ids that
    sort by time, they contain the time.
    """
    return run_id[:13]


def attempt_key(attempt: str, run_id: str) -> str:
    """Returns a key for the attempt that is never used again: a job's name can be reused, a run's
    id cannot.
    """
    return f"{attempt}/{short_run(run_id)}"


def attempt_of_key(key: str) -> int:
    """Returns the number of the attempt in the result of `attempt_key`."""
    number = key.partition("@")[2].partition("/")[0]
    return int(number) if number.isdecimal() else 1


def gang_of_key(key: str) -> tuple[str, str]:
    """Returns the gang in the result of `attempt_key`, without its attempt, and its run. They are
    the same for all attempts of one gang.
    """
    gang, _, attempt = key.partition("@")
    return gang, attempt.partition("/")[2].partition("/")[0]


def slice_id(prefix: str, group: str, token: str) -> str:
    """Returns a slice's id, which is also the name of its machines. Cloud providers allow only
    lower-case letters, digits and dashes.

    Args:
        prefix: distinguishes the machines of this cluster from those of other clusters. It may be
            empty.
    """
    return "-".join(
        re.sub("[^a-z0-9]+", "-", part.lower()).strip("-")
        for part in (prefix, group, token)
        if part
    )


def controller_machine(prefix: str, cluster: str) -> str:
    """Returns the name of a cluster's controller VM. A cluster has only one, because a zone cannot
    have two VMs of the same name.
    """
    return slice_id(prefix, cluster, "controller")


def host_of_slice(slice_id: str, worker: int, hosts: int) -> str:
    """Returns the id of the slice's host with this worker id. In a slice of one host, the host has
    the id of the slice.
    """
    return slice_id if hosts == 1 else f"{slice_id}-w-{worker}"


def slice_of_host(host_id: str) -> str:
    """Returns the id of the slice that a host belongs to. The host's id must come from
    `host_of_slice`.
    """
    slice_id, _, worker = host_id.rpartition("-w-")
    return slice_id if slice_id and worker.isdecimal() else host_id


# -- Temporal -----------------------------------------------------------------------------------


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


def schedule_id(cluster: str, job: str) -> str:
    """Returns the id of the schedule that starts the job. Temporal appends the time to the ids of
    the workflows that it starts.
    """
    return f"{cluster}/schedule/{job}"


def job_of_workflow(workflow_id: str) -> str:
    """Returns the job id that the id of a job's workflow or schedule contains."""
    return workflow_id.split("/", 2)[2]


def control_queue(cluster: str) -> str:
    return f"{cluster}/control"


def planner_queue(cluster: str) -> str:
    return f"{cluster}/planner"


def patient_queue(cluster: str) -> str:
    """Returns the queue for activities that wait for a workflow. There may be one such activity for
    each job.
    """
    return f"{cluster}/patient"


def host_queue(cluster: str, host_id: str) -> str:
    return f"{cluster}/host/{host_id}"


def sessions(cluster: str) -> str:
    """Returns the beginning of the ids of sessions."""
    return f"{cluster}/session/"


def session(cluster: str, task: str, activity: str, session: str) -> str:
    """Returns the id of the activity of a session: of a command, a profile, or connections to ports
    beside a task. It begins with the task, whose owner alone may start such an activity.
    """
    return f"{sessions(cluster)}{task}/{activity}/{session}"


#: The text that stands for the command of a job whose tasks are the workers of a pool. Lists of
#: jobs show it.
POOL_WORKER = "pool-worker"


def pools(cluster: str) -> str:
    """Returns the beginning of the queues of all worker pools."""
    return f"{cluster}/pool/"


def pool_queue(cluster: str, job: str, token: str) -> str:
    """Returns the queue of a worker pool's calls. The token distinguishes pools of the same job
    name.
    """
    return f"{pools(cluster)}{job}-{token}"


def host_of_queue(cluster: str, queue: str) -> str | None:
    """Returns the host that a task queue belongs to, or None if the queue does not belong to a host
    of this cluster.
    """
    prefix = host_queue(cluster, "")
    return queue.removeprefix(prefix) if queue.startswith(prefix) else None


def worker_identity(host_id: str, incarnation: str) -> str:
    return f"{host_id}@{incarnation}"


def incarnation_of(identity: str) -> str:
    return identity.rpartition("@")[2]


#: The beginning of the name of the signal with which a host tells the scheduler that a gang's tasks
#: no longer occupy it. The host's id follows. Temporal's servers check this id, because they cannot
#: check the content of the signal.
_VACATE = "vacate/"


def vacate_signal(host_id: str) -> str:
    return f"{_VACATE}{host_id}"


def host_of_signal(name: str) -> str | None:
    """Returns the host of a signal that `vacate_signal` names; None for other signals."""
    return name.removeprefix(_VACATE) if name.startswith(_VACATE) else None


#: The key of the gRPC metadata with the task token of an activity. An agent adds it to a call about
#: a workflow. The token proves to Temporal's servers that the agent's host received an activity of
#: this workflow.
TASK_TOKEN_METADATA = "iris-task-token-bin"  # noqa: S105
#: The header of a workflow's start with the id of another workflow whose files the new workflow
#: reads, such as a checkpoint. Temporal's servers check that the user who starts the workflow may
#: read those files.
READS_HEADER = "iris-reads"

SA_CLUSTER = "IrisCluster"
#: The search attribute that Temporal sets on a workflow that a schedule started: the time at which
#: the workflow was due.
SA_SCHEDULED_AT = "TemporalScheduledStartTime"
SA_KIND = "IrisKind"
SA_STATE = "IrisState"
SA_USER, SA_PARENT = "IrisUser", "IrisParent"
SA_GROUP, SA_PRIORITY, SA_TAGS = "IrisGroup", "IrisPriority", "IrisTags"
#: The search attributes of the type Keyword.
KEYWORDS = (SA_CLUSTER, SA_KIND, SA_STATE, SA_USER, SA_PARENT, SA_GROUP, SA_PRIORITY)
#: The search attributes with their types, as `temporal operator search-attribute create` spells
#: them.
SEARCH_ATTRIBUTES = {**dict.fromkeys(KEYWORDS, "Keyword"), SA_TAGS: "KeywordList"}

KIND_JOB = "job"
KIND_TASK = "task"
KIND_SLICE = "slice"
KIND_SCHEDULER = "scheduler"
KIND_AUTOSCALER = "autoscaler"
KIND_SCHEDULE = "schedule"
#: The workflow type for each kind of workflow of which a cluster can have several at once.
WORKFLOW_TYPES = {
    KIND_JOB: "JobWorkflow",
    KIND_TASK: "TaskWorkflow",
    KIND_SLICE: "SliceWorkflow",
    KIND_SCHEDULE: "ScheduledJobWorkflow",
}
SCHEDULER_TYPE, AUTOSCALER_TYPE = "SchedulerWorkflow", "AutoscalerWorkflow"


def own_workflows(cluster: str, *kinds: str) -> str:
    """Returns the visibility query for the cluster's workflows of these kinds (keys of
    `WORKFLOW_TYPES`).

    Other users of the namespace can start workflows with the search attributes or the ids of Iris.
    The query therefore also requires a workflow type of Iris and the cluster's task queue: only the
    cluster's own control plane runs such workflows.
    """
    types = [WORKFLOW_TYPES[kind] for kind in kinds]
    ids = f"{cluster}/{kinds[0]}/" if len(kinds) == 1 else f"{cluster}/"
    return (
        f"{SA_CLUSTER} = '{cluster}' AND {_is_one_of(SA_KIND, kinds)} AND"
        f" {_is_one_of('WorkflowType', types)} AND TaskQueue = '{control_queue(cluster)}' AND"
        f" WorkflowId STARTS_WITH '{ids}'"
    )


def _is_one_of(attribute: str, values: Sequence[str]) -> str:
    quoted = ", ".join(f"'{value}'" for value in values)
    return f"{attribute} = {quoted}" if len(values) == 1 else f"{attribute} IN ({quoted})"


#: The memo key of the scheduler's workflow for the URL of the object store. Clients read it if they
#: know only the cluster's address.
MEMO_STORE = "iris_store"
#: The memo key of the scheduler's workflow for the URL of the Web UI. Clients read it if they know
#: only the cluster's address.
MEMO_UI = "iris_ui"
#: The memo key of the scheduler's workflow for the URL of the dashboard. Clients read it if they
#: know only the cluster's address.
MEMO_DASHBOARD = "iris_dashboard"
#: The memo key of the scheduler's and the autoscaler's workflows for the version of their state. A
#: control plane with a later version replaces the workflow.
MEMO_VERSION = "iris_book"
#: The memo key of the scheduler's workflow for a code that is made with the cluster's message key
#: from the cluster's name and the URL of its store. A client that has the key checks the code, so
#: that it sends nothing to another cluster or store. The code is empty if the cluster has no
#: message key.
MEMO_MARK = "iris_mark"
#: The memo key for a job's command line, which lists of jobs show.
MEMO_COMMAND = "iris_command"
#: The memo key for a job's number of tasks, which readers of the job's logs need.
MEMO_TASKS = "iris_tasks"
#: The memo key for the accelerators of each task of a job, which lists of jobs show. Only jobs with
#: accelerators have it.
MEMO_DEVICE = "iris_device"
#: The memo key for the git commit of a job's files, as in `JobSpec.commit`.
MEMO_COMMIT = "iris_commit"
#: The memo key for the state and the reason of a job that waits, is held, or ended without full
#: success. Lists of jobs show them.
MEMO_REASON = "iris_reason"
#: The memo key for the text that identifies a line of a batch (`iris submit --batch`). If the batch
#: is submitted again, Iris finds the line's job by this text and starts no second one.
MEMO_BATCH = "iris_batch"
#: The memo key for the link to a job's page in the dashboard. It is in the memo of the workflow
#: that a schedule starts, which passes it to the workflow of its job.
MEMO_DETAILS = "iris_details"
#: The memo key for the times at which a schedule starts its job, as the user wrote them.
MEMO_WHEN = "iris_when"
#: The memo key for the time zone of a schedule's cron expressions, as the user wrote it.
MEMO_TIME_ZONE = "iris_time_zone"
#: The memo key for the `Parent` of a child job.
MEMO_PARENT = "iris_parent"
#: The memo key that marks a job that runs a function.
MEMO_FUNCTION = "iris_function"

# -- environment variables ----------------------------------------------------------------------

ENV_CLUSTER = "IRIS_CLUSTER"
ENV_STATE_DIR = "IRIS_STATE_DIR"
#: The variable in which a program gets the address of its cluster. Clients need it if their
#: configuration does not contain the cluster that `IRIS_CLUSTER` names.
ENV_ADDRESS = "IRIS_CLUSTER_ADDRESS"
#: The variable in which a program gets the Temporal namespace of its cluster, unless that is the
#: default namespace.
ENV_NAMESPACE = "IRIS_CLUSTER_NAMESPACE"
#: The variable that names a file with the keys that encrypt the payloads that Temporal stores.
ENV_PAYLOAD_KEYS = "IRIS_PAYLOAD_KEYS"
#: The variable that names a file with the private keys that open the secrets of the cluster's
#: users.
ENV_SECRET_KEYS = "IRIS_SECRET_KEYS"  # noqa: S105
#: The variable that names the file with the key that authenticates the messages of a cluster.
ENV_MESSAGE_KEY = "IRIS_MESSAGE_KEY"
#: The variable in which a program gets the message key of its job. With this key, the program can
#: send messages only to its job and to its child jobs.
ENV_JOB_KEY = "IRIS_JOB_KEY"
ENV_USER = "IRIS_USER"
#: The variable that names the file with the name and the private key of this process's user
#: (`iris.client.access.identity_file`).
ENV_IDENTITY = "IRIS_IDENTITY"
#: The variable, set as a secret of the job, with the identity of the job: a key that belongs to the
#: job, and a delegation to this key that the job's user has signed
#: (`iris.client.access.token_sources`).
ENV_JOB_IDENTITY = "IRIS_JOB_IDENTITY"
#: The variable with a command that prints a token of an OpenID Connect provider.
ENV_TOKEN_COMMAND = "IRIS_TOKEN_COMMAND"  # noqa: S105
#: The variable that names the file with the policy of a cluster (`iris.access.policy`), for
#: Temporal's servers and for the commands that change it.
ENV_ACCESS_POLICY = "IRIS_ACCESS_POLICY"
#: The variable that switches the export of traces on if its value is `1`.
ENV_TRACING = "IRIS_TRACING"
#: The variable with the span that a program belongs to (W3C Trace Context).
ENV_TRACEPARENT = "TRACEPARENT"
ENV_JOB_ID = "IRIS_JOB_ID"
#: The variable with the job's id in a form that is safe in names of directories and in URLs.
ENV_JOB_UID = "IRIS_JOB_UID"
ENV_TASK_ID = "IRIS_TASK_ID"
ENV_TASK_INDEX = "IRIS_TASK_INDEX"
ENV_NUM_TASKS = "IRIS_NUM_TASKS"
ENV_ATTEMPT = "IRIS_ATTEMPT"
#: The variable that every process of an attempt has. With it, Iris finds leftover processes in any
#: session or process group.
ENV_ATTEMPT_KEY = "IRIS_ATTEMPT_KEY"
ENV_HOST_ID = "IRIS_HOST_ID"
ENV_SLICE_ID = "IRIS_SLICE_ID"
#: The variable with the path of the output directory. Iris stores the files that the program leaves
#: in this directory; `iris fetch` downloads them.
ENV_OUTPUT_DIR = "IRIS_OUTPUT_DIR"
#: The variable with the path of the checkpoint directory. Iris saves the files in this directory
#: and restores them for the task's next attempt.
ENV_CHECKPOINT_DIR = "IRIS_CHECKPOINT_DIR"
#: The variable with the URL of a folder in the object store, the same for all tasks and attempts,
#: for programs that store checkpoints there themselves.
ENV_CHECKPOINT_URL = "IRIS_CHECKPOINT_URL"
#: The variable with the path of the directory that contains the pickled function and the script
#: that runs it.
ENV_CALL_DIR = "IRIS_CALL_DIR"
#: The variable with the directory in which the program starts.
ENV_WORKDIR = "IRIS_WORKDIR"
#: The variable with the address at which other hosts reach the task's host.
ENV_HOST_ADDRESS = "IRIS_HOST_ADDRESS"
#: The variable with the `host:port` at which the tasks of a gang connect to each other, on the host
#: of task 0.
ENV_COORDINATOR = "IRIS_COORDINATOR_ADDRESS"
#: The variables with the position of a task in its gang: the index of the task's slice, the number
#: of slices, and the number of tasks on each slice.
ENV_SLICE_INDEX, ENV_NUM_SLICES, ENV_TASKS_PER_SLICE = (
    "IRIS_SLICE_INDEX",
    "IRIS_NUM_SLICES",
    "IRIS_TASKS_PER_SLICE",
)
#: The prefix of the variables that Iris sets. A job must not set a variable with this prefix.
RESERVED_PREFIX = "IRIS_"


def env_port(name: str) -> str:
    """Returns the variable that contains the number of the port with this name."""
    return f"IRIS_PORT_{re.sub('[^A-Z0-9]', '_', name.upper())}"


# Set for tasks of a gang, under the names that JAX and libtpu read. A job may override these
# variables, unlike those above.
ENV_JAX_COORDINATOR, ENV_JAX_NUM_PROCESSES, ENV_JAX_PROCESS_ID = (
    "JAX_COORDINATOR_ADDRESS",
    "JAX_NUM_PROCESSES",
    "JAX_PROCESS_ID",
)
ENV_TPU_NAME = "TPU_NAME"
ENV_TPU_WORKER_ID = "TPU_WORKER_ID"
ENV_TPU_TOPOLOGY = "TPU_TOPOLOGY"
ENV_TPU_TYPE = "TPU_ACCELERATOR_TYPE"
