"""What a host tells the scheduler about a placement whose job was terminated."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from iris.messages.scheduler import Uses, UsesPage, Vacate
from iris.model import names
from tests.builders import some
from tests.harness import Cluster, Held, ask


@pytest.mark.parametrize(
    ("signal", "host_id"),
    [("h2", "h1"), ("h2", "h2"), ("h1", "h2"), ("h1", None), ("", "h1"), ("h1/x", "h1")],
)
async def test_a_host_frees_its_own_placements_only(
    cluster: Cluster, signal: str, host_id: str | None
) -> None:
    """Temporal's servers check the host in the name of the signal; a stolen host may send
    anything.
    """
    host = await cluster.join("h1", offers=some(cpu=4), program=Held())
    await cluster.submit("train", resources=some(cpu=4))
    await cluster.until(lambda: host.taken)
    (task,) = host.taken

    def told(of: str) -> Vacate:
        key, incarnation = task.placement_key, task.incarnation
        return Vacate(key=key, host_id=of, incarnation=incarnation, at=datetime.now(UTC))

    said: Any = told(host_id) if host_id is not None else {"key": 1}
    await cluster.scheduler.signal(names.vacate_signal(signal), said)
    assert (await cluster.snapshot()).running == 1
    await cluster.scheduler.signal("unknown", said)
    assert (await cluster.snapshot()).running == 1

    await cluster.scheduler.signal(names.vacate_signal("h1"), told("h1"))
    assert (await cluster.snapshot()).running == 0


async def test_a_host_cannot_stop_the_scheduler_or_its_records_with_a_strange_time(
    cluster: Cluster,
) -> None:
    """A stolen host may send anything. A time without a zone cannot be compared, and a time of the
    year 9999 is none in most zones.
    """
    host = await cluster.join("h1", offers=some(cpu=4), program=Held())
    await cluster.submit("train", resources=some(cpu=4))
    await cluster.until(lambda: host.taken)
    (task,) = host.taken
    told: dict[str, Any] = {
        "key": task.placement_key,
        "host_id": "h1",
        "incarnation": task.incarnation,
    }

    for strange in ("2026-11-29T12:00:00", "0001-01-01T00:00:00+14:00"):
        await cluster.scheduler.signal(names.vacate_signal("h1"), {**told, "at": strange})
        assert (await cluster.snapshot()).running == 1
    later = "9999-12-31T23:59:59-14:00"
    await cluster.scheduler.signal(names.vacate_signal("h1"), {**told, "at": later})
    assert (await cluster.snapshot()).running == 0
    now = await cluster.now()
    uses = await ask(cluster.scheduler, "uses", Uses, UsesPage(at=now))
    assert [abs(now - use.ended_at) < timedelta(hours=1) for use in uses.uses] == [True]
