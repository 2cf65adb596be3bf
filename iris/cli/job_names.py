"""Reads how users name jobs: `NAME`, `USER/NAME`, a task `NAME:3`, a run `NAME#2`."""

from iris.client.client import AsyncIrisClient
from iris.client.connect.identity import full_job_id, in_a_job
from iris.model.errors import InvalidValue, Rejected


def job_and_task(job: str, task: int | None = None) -> tuple[str, int | None]:
    """Returns the id of the job in `NAME`, `USER/NAME` or `NAME:3`, and the number of the task.

    Args:
        task: the command's option `--task`, which must not differ from the text.

    Raises:
        InvalidValue: the text after the colon is not a number, or differs from `task`; or the text
            names a run (`job_and_run`).
    """
    if "#" in job:
        raise InvalidValue(
            "job",
            job,
            "names one run",
            "this command acts on the latest run: leave out # and the number",
        )
    name, colon, number = job.partition(":")
    if colon:
        if not number.isdecimal():
            raise InvalidValue(
                "job", job, "does not name a task", "write NAME:NUMBER, such as train:3 for task 3"
            )
        if task not in (None, int(number)):
            raise InvalidValue("job", job, f"differs from --task {task}", "name the task once")
        task = int(number)
    return full_job_id(name), task


async def named_job(client: AsyncIrisClient, text: str) -> str:
    """Returns the id of the job in `NAME`, `USER/NAME`, or with a run or a task: `NAME#2:3`.

    In a job, NAME means a child job of that name if there is one.

    Raises:
        InvalidValue: the text does not name a job.
        Unreachable: the service does not answer.
    """
    name = text.partition("#")[0].partition(":")[0]
    return (
        await client.jobs.resolve_id(name) if in_a_job() and "/" not in name else full_job_id(name)
    )


async def whole_job(client: AsyncIrisClient, text: str) -> str:
    """Returns the id of the job, as `named_job` does, for commands that act on whole jobs.

    `NAME:0`, which lists print, also names a job with one task.

    Raises:
        NotFound: there is no such job.
        Rejected: the text names one of several tasks.
    """
    _, task = job_and_task(text)
    job = await named_job(client, text)
    if task is None:
        return job
    tasks = (await client.jobs.log_source(job)).tasks
    if (task, tasks) != (0, 1):
        raise Rejected(
            f"{text} is a task of {job}, which has {tasks}; this command acts on whole jobs: name"
            f" {job}"
        )
    return job
