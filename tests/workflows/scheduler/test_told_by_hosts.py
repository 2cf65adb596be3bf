"""What a host tells the scheduler about a placement whose job was terminated."""

from datetime import UTC, datetime
from typing import Any

import pytest

from iris.messages.scheduler import Vacate
from iris.model import names
from tests.builders import some
from tests.harness import Cluster, Held


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
