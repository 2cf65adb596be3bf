"""Finds and deletes what ended jobs have left in a cluster's store."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client

from iris.client.connect.connection import RPC_TIMEOUT
from iris.client.connect.rpc import Connection
from iris.client.jobs.submit.bundles import bundles_of
from iris.client.jobs.submitted import submitted_spec
from iris.client.logs.follow import reading_from
from iris.client.schedules.client import SchedulesClient
from iris.concurrency import for_each
from iris.model import names
from iris.model.errors import InvalidValue, NotFound, Rejected, Unreachable, first_line
from iris.model.job.spec import JobSpec
from iris.model.units import format_duration
from iris.storage.garbage import Needed, UnusedFolder, is_needed, unused
from iris.storage.object_store import STORE_ERRORS, Store

#: The least age of what is deleted. A job that was submitted meanwhile has younger files.
LEAST_AGE = timedelta(days=1)
#: The least age of bundles. A submission writes a bundle again that is older than `upload.FRESH`,
#: so no new job has an older one.
LEAST_BUNDLE_AGE = timedelta(days=3)
#: How many jobs are looked up at once.
_AT_ONCE = 16
#: How many objects are deleted with one request.
_BATCH = 1_000
#: How many folders are checked once more and deleted together, at most.
_FOLDERS = 256


async def find_unused(connection: Connection, older_than: timedelta) -> list[UnusedFolder]:
    """Returns what ended jobs have left, the largest first: logs, outputs, checkpoints, bundles,
    and files of pools.

    Raises:
        InvalidValue: the age is too short.
        Rejected: the store has files of other clusters, whose jobs are not known here; or no mark
            of this one.
        Unreachable: the service does not answer.
        IrisError: the store does not answer.
    """
    if older_than < LEAST_AGE:
        least = format_duration(LEAST_AGE)
        remedy = f"give {least} or more"
        raise InvalidValue(
            "older_than",
            format_duration(older_than),
            "is too short for what jobs may still need",
            remedy,
        )
    store, now = Store(connection.record.store), datetime.now(UTC)
    with reading_from(store, "the list of files"):
        await check_alone(connection, store)
        stored = (
            await store.stored()
        )  # before the jobs: what a later job needs is not in this list, or is young
    return unused(
        stored, await _needed(connection), now - older_than, now - max(older_than, LEAST_BUNDLE_AGE)
    )


async def delete_unused(
    connection: Connection, folders: Sequence[UnusedFolder]
) -> list[UnusedFolder]:
    """Deletes what `find_unused` has found, and returns it, without what was written again or is
    needed since.

    Raises:
        Unreachable: the service does not answer.
        IrisError: the store does not answer.
    """
    store = Store(connection.record.store)
    deleted = []
    with reading_from(store, "the list of files"):
        for batch in _batches(folders):
            # In this order: who needs an old bundle has written it before.
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
    """Returns what live jobs and schedules need."""
    query = f"{connection.list_query(names.KIND_JOB)} AND ExecutionStatus = 'Running'"
    with connection.rpc_errors():
        # Twice: a job that continues as new between two pages is on none of them.
        listed = [each for _ in range(2) async for each in connection.client.list_workflows(query)]
    live = {(names.job_of_workflow(each.id), each.run_id) for each in listed}

    async def spec_of(job_run: tuple[str, str | None]) -> JobSpec | None:
        try:
            return await submitted_spec(connection, *job_run)
        except NotFound:  # it has ended meanwhile, and the service has forgotten it
            return None

    specs = [spec for spec in await for_each(live, spec_of, at_once=_AT_ONCE) if spec is not None]
    schedules = SchedulesClient(connection)
    for row in await schedules.list():
        specs.append((await schedules.show(row.id)).spec)
    return Needed(
        families=frozenset(names.root_id(job) for job, _ in live),
        bundles=frozenset(
            names.bundle(bundle.sha256) for spec in specs for bundle in bundles_of(spec)
        ),
        checkpoints=frozenset(
            spec.from_checkpoint.folder for spec in specs if spec.from_checkpoint is not None
        ),
    )


_REMEDY = "give each cluster a store of its own, or the bucket a lifecycle rule"


async def mark_store(client: Client, cluster: str, url: str) -> None:
    """Marks the store as that of the cluster in this client's namespace. Every control plane does
    so.

    Raises:
        RPCError: the service does not answer.
        Unreachable: the store does not.
    """
    mark = names.cluster_namespace(cluster, await _namespace_id(client))
    try:
        await Store(url).put_new(mark, f"namespace {client.namespace}\n".encode())
    except STORE_ERRORS as error:
        raise Unreachable(f"the store {url} cannot be used: {first_line(error)}") from None


async def check_alone(connection: Connection, store: Store) -> None:
    """Checks that only this cluster uses the store.

    Raises:
        Rejected: it has marks of other clusters, or no mark of this one.
        Unreachable: the service does not answer.
        OSError, BaseError: the store does not answer.
    """
    cluster = connection.record.name
    if others := [name for name in await store.folders("clusters") if name != cluster]:
        text = (
            f"the store {store.url} also has files of {', '.join(others)}, whose jobs this cluster"
            " does not know"
        )
        raise Rejected(f"{text}; {_REMEDY}")
    with connection.rpc_errors():
        own = names.cluster_namespace(cluster, await _namespace_id(connection.client))
    marks = await store.objects(own.rpartition("/")[0])
    if foreign := [mark for mark in marks if mark != own]:
        text = (
            f"the store {store.url} also has files of a cluster {cluster} in another Temporal"
            " namespace"
        )
        raise Rejected(
            f"{text}: {', '.join(foreign)}; {_REMEDY}, or delete this mark if that cluster is gone"
        )
    if own not in marks:
        text = (
            f"the store {store.url} has no mark of the cluster {cluster}, so it may be that of"
            " another one"
        )
        raise Rejected(
            f"{text}; check the store's address, or start the cluster's control plane with this"
            " version"
        )


async def _namespace_id(client: Client) -> str:
    """Returns the id of the client's namespace, which is like that of no other one, on any
    service.
    """
    request = DescribeNamespaceRequest(namespace=client.namespace)
    described = await client.workflow_service.describe_namespace(request, timeout=RPC_TIMEOUT)
    return described.namespace_info.id
