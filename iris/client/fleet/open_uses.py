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


async def uses_not_stored(connection: Connection) -> list[Use]:
    """Returns the uses that are not in the store, each once. Uses that have not ended are counted
    up to now: an attempt has the end OPEN, and a slice is `open`.

    A use whose record is stored meanwhile may be in both. Read the store afterwards, and let its
    record count. The slices of machines that joined by themselves are not among them.

    Raises:
        Unreachable: no control plane answers.
    """
    now = datetime.now(UTC)
    uses: dict[str, Use] = {}
    read = 0
    while True:
        asked = UsesPage(offset=read, at=now)
        page = await connection.query(connection.scheduler, "uses", Uses, asked)
        uses.update((use.id, use) for use in page.uses)
        read += len(page.uses)
        if not page.uses or read >= page.total:
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


async def _tags(connection: Connection) -> dict[str, dict[str, str]]:
    """Returns the tags of the running jobs, by job."""
    query = f"{connection.list_query(names.KIND_JOB)} AND ExecutionStatus = 'Running'"
    with connection.rpc_errors():
        return {
            names.job_of_workflow(each.id): tags_of(each)
            async for each in connection.client.list_workflows(query)
        }
