"""Asks for the uses that are not in the store: placements and slices that exist now, and uses
whose records wait to be stored.
"""

from datetime import UTC, datetime

from iris.client.connect.rpc import Connection
from iris.client.fleet.autoscaler import AutoscalerClient
from iris.client.jobs.rows import tags_of
from iris.messages.scheduler import Uses, UsesPage
from iris.model import names
from iris.usage.records import AttemptUse, Use
from iris.usage.slices import slice_use

#: How often the scheduler is asked for all uses. Some may be missing if others end between two
#: pages, each time again.
TRIES = 5


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
    tags = await _tags(connection) if running else {}
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


async def _tags(connection: Connection) -> dict[str, dict[str, str]]:
    """Returns the tags of the running jobs, by job."""
    query = f"{connection.list_query(names.KIND_JOB)} AND ExecutionStatus = 'Running'"
    with connection.rpc_errors():
        return {
            names.job_of_workflow(each.id): tags_of(each)
            async for each in connection.client.list_workflows(query)
        }
