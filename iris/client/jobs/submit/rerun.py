"""Makes a job that runs an earlier job again, or only those of its tasks that did not succeed."""

from collections.abc import Mapping

from pydantic import ValidationError

from iris.client.build.conflicts import invalid_job
from iris.client.connect.identity import current_user
from iris.client.jobs.client import JobsClient
from iris.client.jobs.submit.bundles import keep_bundles
from iris.client.jobs.submit.start import Submitted
from iris.model import names
from iris.model.errors import Rejected
from iris.model.job.arrays import Array, format_indices
from iris.model.job.secrets import SecretKind, why_not_sealed
from iris.model.job.spec import JobSpec
from iris.model.states import ENDED, TaskState
from iris.storage.object_store import Store


async def submit_again(
    jobs: JobsClient,
    store: Store,
    job: str,
    run_id: str | None,
    *,
    failed: bool,
    name: str | None,
    secrets: Mapping[str, str] = {},
) -> Submitted | None:
    """Submits the job of `spec_again`, and keeps its files in the store.

    Args:
        secrets: sources of secrets that replace those of the job, by their variables.

    Raises:
        NotFound: there is no such job, or its files are not in the store any more.
        Rejected: a live job has the name; or a secret that the job was given by its submitter is
            not given again.
        IrisError: the store does not answer.
        InvalidJob, Unreachable: as in `spec_again`.
    """
    spec = await spec_again(jobs, job, run_id, failed=failed, name=name)
    if spec is None:
        return None
    spec = spec.model_copy(update={"secrets": {**spec.secrets, **secrets}})
    if gone := [each for each, source in spec.secrets.items() if not _is_left(spec.id, source)]:
        again = "".join(
            [
                " --failed" * failed,
                f" -n {name}" if name else "",
                *(f" --secret {each}" for each in gone),
            ]
        )
        why = (
            f"secrets that were given to {job} are for it alone and deleted with it:"
            f" {', '.join(gone)}"
        )
        raise Rejected(f"{why}; give the new job its own: iris rerun{again} {job}")
    await keep_bundles(store, spec)
    return await jobs.submit(spec)


def _is_left(job: str, source: str) -> bool:
    """Returns whether a job may still use the source of a secret that an earlier job had."""
    kind, _, path = source.partition(":")
    return kind != SecretKind.SEALED or (
        not path.startswith(f"{names.SEALED_JOB}/") and not why_not_sealed(path, job)
    )


async def spec_again(
    jobs: JobsClient, job: str, run_id: str | None, *, failed: bool, name: str | None
) -> JobSpec | None:
    """Returns the job that runs the job again: the same command, files, resources and environment.

    Args:
        run_id: an earlier run; None: the latest.
        failed: only the tasks that have ended without success, with their indices and rows. The
            tasks of a gang run all together.
        name: None: the name of the job.

    Returns:
        None if no task is left: all have succeeded, or still run.

    Raises:
        NotFound: there is no such job.
        InvalidJob: no job can have this name.
        Unreachable: the service, or the control plane if `failed`, does not answer.
    """
    spec = await jobs.submitted_spec(job, run_id)
    changes: dict[str, object] = {
        "user": current_user(),
        "name": name or spec.name,
        "parent": None,
        "after": (),
    }
    if failed:
        tasks = (await jobs.status(job, run_id)).tasks
        left = [
            task.index
            for task in tasks
            if task.state in ENDED and task.state is not TaskState.SUCCEEDED
        ]
        if not left:
            return None
        if spec.coscheduling is None:
            array = spec.array or Array(indices=format_indices(spec.indices), size=spec.replicas)
            changes |= {"array": array.only(left), "replicas": len(left)}
    try:
        return JobSpec.model_validate(spec.model_copy(update=changes).model_dump())
    except ValidationError as error:
        raise invalid_job(error) from None
