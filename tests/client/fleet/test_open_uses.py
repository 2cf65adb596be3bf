"""The uses that are not in the store: the attempts that run."""

import pytest

from iris.client.fleet import open_uses
from iris.client.fleet.open_uses import uses_not_stored
from iris.usage.records import AttemptUse
from tests.builders import some
from tests.harness import Held, dev_server_cluster


async def test_running_attempts_have_the_tags_of_their_jobs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only the service knows them while a job runs. It is asked for a few jobs at a time, and not
    for those that wait: there may be thousands.
    """
    monkeypatch.setattr(open_uses, "TOGETHER", 1)
    program = Held()
    async with dev_server_cluster() as cluster:
        await cluster.start_autoscaler()
        await cluster.join(offers=some(cpu=3), program=program)
        jobs = [
            await cluster.submit("speech", tags={"team": "speech"}),
            await cluster.submit("plain"),
            await cluster.submit("vision", tags={"team": "vision", "sweep": ""}),
        ]
        found: dict[str, dict[str, str]] = {}

        async def all_listed() -> bool:
            uses = await uses_not_stored(cluster.users.connection)
            found.update({use.job: use.tags for use in uses if isinstance(use, AttemptUse)})
            return len(found) == len(jobs) and sum(map(bool, found.values())) == 2

        await cluster.until(all_listed)
        waits = await cluster.submit("waits", tags={"team": "speech"})
        await cluster.waits(waits)
        found.clear()
        await cluster.until(all_listed)
        program.let_go()

    assert found == dict(
        zip(jobs, [{"team": "speech"}, {}, {"team": "vision", "sweep": ""}], strict=True)
    )
    assert waits not in found
