"""Spells the paths of all objects in the store. No other file spells any of them."""

import re

from iris.model.names import is_name, short_run, task_id

#: Matches the id of a run in the short form of `names.short_run`.
_RUN = re.compile("[0-9a-f]{8}-[0-9a-f]{4}")


def cluster_uid(cluster: str) -> str:
    """Returns the path of the cluster's unique id. It distinguishes the machines of this cluster
    from those of another cluster with the same name.
    """
    return f"clusters/{cluster}/uid"


def cluster_namespace(cluster: str, namespace_id: str) -> str:
    return f"clusters/{cluster}/namespaces/{namespace_id}"


def accounting(cluster: str) -> str:
    """Returns the path of the cluster's prices, teams and budgets (`iris.usage.accounting`)."""
    return f"clusters/{cluster}/accounting.json"


def budget_uses(cluster: str) -> str:
    """Returns the path of how much of the cluster's budgets is used (`iris.usage.budgets`)."""
    return f"clusters/{cluster}/budgets.json"


def secret_key(cluster: str) -> str:
    """Returns the path of the public key with which secrets are sealed for the cluster's agents."""
    return f"clusters/{cluster}/secret-key"


#: The folders of sealed values: of values for one job, of values for a schedule, and of a user's
#: named secrets.
SEALED_JOB, SEALED_SCHEDULE, SEALED_USER = "job", "schedule", "user"


def sealed_object(cluster: str, path: str) -> str:
    """Returns the path of an object with sealed values.

    Args:
        path: the result of `sealed_for_job`, `sealed_for_schedule` or `sealed_by_user`.
    """
    return f"sealed/{cluster}/{path}"


def sealed_for_job(job: str, token: str) -> str:
    """Returns the path of the values that were given to a job. The token distinguishes the job's
    runs.
    """
    return f"{SEALED_JOB}/{job}/{token}"


def sealed_for_schedule(job: str, token: str) -> str:
    return f"{SEALED_SCHEDULE}/{job}/{token}"


def sealed_by_user(user: str, name: str) -> str:
    """Returns the path of a named secret of a user."""
    return f"{SEALED_USER}/{user}/{name}"


def job_logs(job: str, run_id: str) -> str:
    return f"logs/{job}/{short_run(run_id)}"


def attempt_logs(job: str, run_id: str, index: int, attempt: int) -> str:
    return f"{job_logs(job, run_id)}/{index}/{attempt}"


def attempt_use(logs: str) -> str:
    """Returns the path of the series of an attempt's resource use (`iris.usage.series`).

    Args:
        logs: the attempt's log folder, from `attempt_logs`.
    """
    return f"{logs}/use.json"


def job_uid(logs: str) -> str:
    """Returns an id without slashes that all attempts of one run of a job share, and no other run
    has.

    Args:
        logs: the log folder of any attempt of the run, from `attempt_logs`.
    """
    return "-".join(logs.split("/")[1:-2])


def log_chunk(prefix: str, sequence: int) -> str:
    """Returns the path of a log chunk. The sequence number has ten digits, so that names sort by
    number.
    """
    return f"{prefix}/{sequence:010d}.log"


def bundle(sha256: str) -> str:
    return f"bundles/{sha256}.tar.gz"


def attempt_outputs(job: str, run_id: str, index: int, attempt: int) -> str:
    return f"{job_outputs(job, run_id)}/{index}/{attempt}"


def job_outputs(job: str, run_id: str) -> str:
    return f"outputs/{job}/{short_run(run_id)}"


def job_checkpoints(job: str, run_id: str) -> str:
    return f"checkpoints/{job}/{short_run(run_id)}"


def task_checkpoints(job: str, run_id: str, index: int) -> str:
    """Returns the folder with the saves of a task's checkpoint directory. All attempts of the task
    share it.
    """
    return f"{job_checkpoints(job, run_id)}/{index}"


def task_of_checkpoints(saves: str) -> str:
    """Returns the id of the task whose saves the folder has."""
    _, *job, _, index = saves.split("/")
    return task_id("/".join(job), int(index))


def job_of_checkpoints(folder: str) -> str | None:
    """Returns the job of a folder that `job_checkpoints` returns; None if it is no such folder."""
    job, _, run = folder.partition("/")[2].rpartition("/")
    is_id = "/" in job and all(map(is_name, job.split("/")))
    is_known = is_id and is_run(run) and folder == job_checkpoints(job, run)
    return job if is_known else None


def shared_checkpoints(saves: str) -> str:
    """Returns the folder in which the programs of a job store checkpoints themselves. It lies
    beside the saves of the job's tasks.

    Args:
        saves: the folder of the saves of any task of the job.
    """
    return f"{saves.rpartition('/')[0]}/shared"


def agent_logs(cluster: str, host_id: str) -> str:
    """Returns the folder of an agent's logs. It has a folder for each incarnation of the agent;
    these sort by time.
    """
    return f"agents/{cluster}/{host_id}"


def audit(cluster: str) -> str:
    """Returns the folder of the cluster's audit, which has a folder for each day."""
    return f"audit/{cluster}"


def usage_records(cluster: str) -> str:
    """Returns the folder of the records of use (`iris.usage.records`). It has a folder for each
    day, by UTC, on which the recorded use ended: `2026-11-28`.
    """
    return f"usage/{cluster}"


def simulation_reports(cluster: str) -> str:
    """Returns the folder of the published reports of simulations. It has a folder for each name."""
    return f"simulations/{cluster}"


def simulation_report(cluster: str, name: str) -> str:
    """Returns the path of a published report (`iris.simulation.report.stored`)."""
    return f"{simulation_reports(cluster)}/{name}/report.jsonl"


def name_of_simulation(cluster: str, path: str) -> str | None:
    """Returns the name of a published report by its path; None if the path is that of no report."""
    name = path.removeprefix(f"{simulation_reports(cluster)}/").partition("/")[0]
    return name if is_name(name) and path == simulation_report(cluster, name) else None


def exec_files(job: str, session: str) -> str:
    """Returns the folder for the input and output of a command that runs beside a task of the job
    (`iris exec`). It is in the folder of the job's user.
    """
    return f"{exec_files_of_user(job.partition('/')[0])}/{session}"


def exec_files_of_user(user: str) -> str:
    """Returns the folder for the commands that run beside this user's tasks."""
    return f"exec/{user}"


def is_run(folder: str) -> bool:
    """Returns whether a folder in a job's folder belongs to a run of the job. Other folders belong
    to its child jobs.
    """
    return _RUN.fullmatch(folder) is not None


def is_job_uid(text: str, job: str) -> bool:
    """Returns whether the text can be a `job_uid` of the job."""
    name = f"{job.replace('/', '-')}-"
    return text.startswith(name) and is_run(text[len(name) :])


def actor_certificate(uid: str) -> str:
    """Returns the path of the certificate of a job's actors, with its private key.

    Args:
        uid: the job's `job_uid`.
    """
    return f"actors/{uid}/certificate.pem"


def pool_files(queue: str) -> str:
    """Returns the folder of a worker pool's large messages."""
    return f"pools/{queue}"
