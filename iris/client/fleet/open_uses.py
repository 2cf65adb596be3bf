"""Asks for the uses that are not in the store: placements and slices that exist now, and uses
whose records wait to be stored.
"""

from collections.abc import Collection
from datetime import UTC, datetime

from iris.client.connect.rpc import Connection
from iris.client.fleet.autoscaler import AutoscalerClient
from iris.client.jobs.rows import tags_of
from iris.messages.scheduler import Uses, UsesPage
from iris.model import names
from iris.usage.records import AttemptUse, Use
from iris.usage.slices import slice_use

#: The maximum number of times that the records of use are read from the scheduler, page by page.
#: They are read again if their number changed between two pages, because a placement that began or
#: ended in this time may be missing.
TRIES = 5
#: The maximum number of jobs whose tags are read with one query.
TOGETHER = 200


async def uses_not_stored(connection: Connection) -> list[Use]:
    """Returns the uses that are not in the store, each once. Uses that have not ended are counted
    up to now: an attempt has the end OPEN, and a slice is `open`.

    A use whose record is stored meanwhile may be in both. Read the store afterwards, and let its
    record count. The slices of machines that joined by themselves are not among them.

    Raises:
        Unreachable: no control plane answers.
    """
    now = datetime.now(UTC)
    for _ in range(TRIES):
        uses, is_whole = await _of_scheduler(connection, now)
        if is_whole:
            break
    status = await AutoscalerClient(connection).status()
    groups = {group.name: group for group in status.settings.groups} if status.settings else {}
    for facts in status.slices:
        use = slice_use(facts, now, groups.get(facts.group), open=True)
        uses.setdefault(use.id, use)
    running = [use for use in uses.values() if isinstance(use, AttemptUse) and not use.tags]
    tags = await _tags(connection, {attempt.job for attempt in running})
    for attempt in running:
        uses[attempt.id] = attempt.model_copy(update={"tags": tags.get(attempt.job, {})})
    return list(uses.values())


async def _of_scheduler(connection: Connection, now: datetime) -> tuple[dict[str, Use], bool]:
    """Returns the uses that the scheduler knows, by id, and whether they are all: none may have
    begun or ended between two pages.
    """
    uses: dict[str, Use] = {}
    read, total = 0, -1
    while read != total:
        asked = UsesPage(offset=read, at=now)
        page = await connection.query(connection.scheduler, "uses", Uses, asked)
        if total not in (-1, page.total):
            return uses, False
        uses.update((use.id, use) for use in page.uses)
        read, total = read + len(page.uses), page.total
        if not page.uses:
            break
    return uses, True


async def _tags(connection: Connection, jobs: Collection[str]) -> dict[str, dict[str, str]]:
    """Returns the tags of these jobs, by job. Leaves out jobs that have ended, and jobs without
    tags. Asks for these jobs only: thousands of others may wait.
    """
    cluster, tags = connection.record.name, dict[str, dict[str, str]]()
    # Any client can start a workflow with a quote in its id, and a query cannot contain a quote.
    ids = [
        f"'{names.job_workflow(cluster, job)}'"
        for job in sorted(jobs)
        if "'" not in job and "\\" not in job
    ]
    live = f"{connection.list_query(names.KIND_JOB)} AND ExecutionStatus = 'Running'"
    with connection.rpc_errors():
        for first in range(0, len(ids), TOGETHER):
            some = ", ".join(ids[first : first + TOGETHER])
            query = f"{live} AND {names.SA_TAGS} IS NOT NULL AND WorkflowId IN ({some})"
            async for each in connection.client.list_workflows(query):
                tags[names.job_of_workflow(each.id)] = tags_of(each)
    return tags
