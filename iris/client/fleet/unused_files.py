"""Finds and deletes the files of ended jobs in a cluster's store."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial

from iris.client.connect.rpc import Connection
from iris.client.fleet.store_marks import check_alone
from iris.client.jobs.submit.bundles import bundles_of
from iris.client.jobs.submitted import submitted_spec
from iris.client.logs.follow import reading_from
from iris.client.schedules.client import SchedulesClient
from iris.concurrency import for_each
from iris.model import names, store_paths
from iris.model.errors import InvalidValue, NotFound
from iris.model.job.spec import JobSpec
from iris.model.units import format_duration
from iris.storage.garbage import Needed, UnusedFolder, is_needed, unused
from iris.storage.object_store import Store

#: The minimum age of files that are deleted. It protects the files of a job that is submitted
#: during the deletion, because they are younger.
LEAST_AGE = timedelta(days=1)
#: The minimum age of bundles that are deleted. A submission uploads a bundle again if the stored
#: bundle is older than `upload.FRESH`, so no new job uses an older bundle.
LEAST_BUNDLE_AGE = timedelta(days=3)
#: The maximum number of jobs or folders that are looked up at the same time.
_AT_ONCE = 16
#: The maximum number of objects that are deleted with one request.
_BATCH = 1_000
#: The maximum number of folders that are deleted as one group. Shortly before the deletion of each
#: group, Iris checks that all its folders are still unused.
_FOLDERS = 256


async def find_unused(connection: Connection, older_than: timedelta) -> list[UnusedFolder]:
    """Returns the folders that only ended jobs used, and the published reports of simulations, the
    largest first. Folders of jobs have logs, outputs, checkpoints, bundles and files of pools.

    Raises:
        InvalidValue: the age is too short.
        Rejected: the store has files of other clusters, whose jobs are not known here, or no mark
            of this cluster.
        Unreachable: the service does not answer.
        IrisError: the store does not answer.
    """
    if older_than < LEAST_AGE:
        least = format_duration(LEAST_AGE)
        remedy = f"give {least} or more"
        raise InvalidValue(
            "older_than",
            format_duration(older_than),
            "is too short: jobs may still need files of this age",
            remedy,
        )
    store, now = Store(connection.record.store), datetime.now(UTC)
    with reading_from(store, "the list of files"):
        await check_alone(connection, store)
        # List the files before the jobs: the files of a later job are not in this list, or young.
        stored = await store.stored()
    return unused(
        stored, await _needed(connection), now - older_than, now - max(older_than, LEAST_BUNDLE_AGE)
    )


async def delete_unused(
    connection: Connection, folders: Sequence[UnusedFolder]
) -> list[UnusedFolder]:
    """Deletes folders that `find_unused` found, and returns them. Keeps folders that were written
    again or are needed since.

    Raises:
        Unreachable: the service does not answer.
        IrisError: the store does not answer.
    """
    store = Store(connection.record.store)
    deleted = []
    with reading_from(store, "the list of files"):
        for batch in _batches(folders):
            # The jobs are listed first: a job that needs an old bundle has written it before.
            needed = await _needed(connection)
            still = await for_each(batch, partial(_as_found, store), at_once=_AT_ONCE)
            unused = [folder for folder, same in zip(batch, still, strict=True) if same]
            chosen = [folder for folder in unused if not is_needed(folder.folder, needed)]
            paths = [path for folder in chosen for path in folder.paths]
            for start in range(0, len(paths), _BATCH):
                await store.delete(paths[start : start + _BATCH])
            deleted += chosen
    return deleted


def _batches(folders: Sequence[UnusedFolder]) -> Iterator[list[UnusedFolder]]:
    """Yields the folders in groups that are checked and deleted together."""
    batch: list[UnusedFolder] = []
    for each in folders:
        batch.append(each)
        if len(batch) == _FOLDERS or sum(len(each.paths) for each in batch) >= _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


async def _as_found(store: Store, folder: UnusedFolder) -> bool:
    """Returns whether nothing was written in the folder since it was found."""
    if folder.paths == (folder.folder,):  # a bundle
        written = await store.modified(folder.folder)
        return written is None or written <= folder.modified
    return all(each.modified <= folder.modified for each in await store.stored(folder.folder))


async def _needed(connection: Connection) -> Needed:
    """Returns the files that running jobs and schedules need."""
    query = f"{connection.list_query(names.KIND_JOB)} AND ExecutionStatus = 'Running'"
    with connection.rpc_errors():
        # List twice: a job that continues as new between two pages is on neither page.
        listed = [each for _ in range(2) async for each in connection.client.list_workflows(query)]
    live = {(names.job_of_workflow(each.id), each.run_id) for each in listed}

    async def spec_of(job_run: tuple[str, str | None]) -> JobSpec | None:
        try:
            return await submitted_spec(connection, *job_run)
        except NotFound:  # the job ended meanwhile, and the service has forgotten it
            return None

    specs = [spec for spec in await for_each(live, spec_of, at_once=_AT_ONCE) if spec is not None]
    schedules = SchedulesClient(connection)
    for row in await schedules.list():
        specs.append((await schedules.show(row.id)).spec)
    return Needed(
        families=frozenset(names.root_id(job) for job, _ in live),
        bundles=frozenset(
            store_paths.bundle(bundle.sha256) for spec in specs for bundle in bundles_of(spec)
        ),
        checkpoints=frozenset(
            spec.from_checkpoint.folder for spec in specs if spec.from_checkpoint is not None
        ),
    )
