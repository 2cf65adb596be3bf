"""Makes a job that runs an earlier job again, or only its tasks that did not succeed."""

from collections.abc import Mapping

from pydantic import ValidationError

from iris.client.build.conflicts import invalid_job
from iris.client.connect.identity import current_user
from iris.client.jobs.client import JobsClient
from iris.client.jobs.submit.bundles import keep_bundles
from iris.client.jobs.submit.start import Submitted
from iris.model import store_paths
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
        secrets: sources of secrets by their variables. They replace the job's own.

    Raises:
        NotFound: there is no such job, or its files are not in the store any more.
        Rejected: a job that has not ended has the name; or a secret of the submitter, which is
            deleted with the job, is missing.
        IrisError: the store does not answer.
        InvalidJob, Unreachable: as for `spec_again`.
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
        why = f"these secrets belong only to {job} and are deleted with it: {', '.join(gone)}"
        raise Rejected(f"{why}; give the new job secrets of its own: iris rerun{again} {job}")
    await keep_bundles(store, spec)
    return await jobs.submit(spec)


def _is_left(job: str, source: str) -> bool:
    """Returns whether a job may still use the source of a secret that an earlier job had."""
    kind, _, path = source.partition(":")
    return kind != SecretKind.SEALED or (
        not path.startswith(f"{store_paths.SEALED_JOB}/") and not why_not_sealed(path, job)
    )


async def spec_again(
    jobs: JobsClient, job: str, run_id: str | None, *, failed: bool, name: str | None
) -> JobSpec | None:
    """Returns the job that runs the job again: the same command, files, resources and environment.

    Args:
        run_id: an earlier run. None is the latest run.
        failed: runs only the tasks that ended without success, with their indices and rows. A gang
            runs as a whole.
        name: the name of the new job. None keeps the name.

    Returns:
        None if `failed` is set and all tasks succeeded or still run.

    Raises:
        NotFound: there is no such job.
        InvalidJob: a job cannot have this name.
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
