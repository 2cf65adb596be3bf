"""How large the autoscaler's payloads are with 10,000 slices of one host each: Temporal accepts 2
MiB.
"""

import random
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from iris.autoscaling.liveness import Silent
from iris.client.connect import connection
from iris.messages.autoscaler import AutoscalerStart, AutoscalerStatus, FleetReport, SliceList
from iris.model.slice.provisioning import MachineState, SliceObservation
from iris.model.slice.status import SliceFacts, SliceState
from iris.model.units import MIB
from iris.planners.demand import wanted_of
from iris.scheduling.ledger.ledger import Ledger
from tests.builders import a_host, at, some

pytestmark = pytest.mark.long

SLICES = 10_000
_DICE = random.Random(14)
IDS = [f"iris-europe-west4-v5litepod-16-{_DICE.getrandbits(32):08x}" for _ in range(SLICES)]
TIMES = [at(_DICE.random() * 1e7) for _ in range(SLICES)]


def facts() -> tuple[SliceFacts, ...]:
    """Ready slices, each with times and sizes of its own, and a reason as long as they are."""
    return tuple(
        SliceFacts(
            id=each,
            group="europe-west4-v5litepod-16",
            zone=f"europe-west4-{'abc'[number % 3]}",
            state=SliceState.READY,
            requested_at=time,
            ready_at=time + timedelta(seconds=_DICE.random() * 1e3),
            changed_at=time + timedelta(seconds=_DICE.random() * 1e3),
            offers=some(cpu=8, memory=32 + _DICE.random(), disk=100 + _DICE.random()),
            reason="every host takes work",
        )
        for number, (each, time) in enumerate(zip(IDS, TIMES, strict=True))
    )


def observations() -> tuple[SliceObservation, ...]:
    return tuple(
        SliceObservation(
            slice_id=each,
            group="europe-west4-v5litepod-16",
            zone="europe-west4-a",
            state=MachineState.ACTIVE,
            created_at=time,
            token=f"{_DICE.getrandbits(128):032x}",
        )
        for each, time in zip(IDS, TIMES, strict=True)
    )


def wanted() -> BaseModel:
    ledger = Ledger()
    ledger.hosts_up(
        [a_host(each, slice_id=each, attributes={"scale-group": "v5e"}) for each in IDS]
    )
    return wanted_of(ledger, at(0))


def silent() -> tuple[Silent, ...]:
    return tuple(
        Silent(
            host_id=each,
            slice_id=each,
            incarnation=f"{_DICE.getrandbits(64):x}",
            age=_DICE.random() * 100,
        )
        for each in IDS
    )


PAYLOADS: dict[str, Any] = {
    "list_slices": lambda: SliceList(slices=facts()),
    "status": lambda: AutoscalerStatus(slices=facts()),
    "start": lambda: AutoscalerStart(cluster="c", slices=facts(), strays=dict.fromkeys(IDS, 1)),
    "wanted": wanted,
    "first report": lambda: FleetReport(changed=observations(), owned=tuple(IDS)),
    "report of strays": lambda: FleetReport(
        changed=observations(), unowned=observations(), owned=(), silent=silent()
    ),
}


@pytest.mark.parametrize("name", PAYLOADS)
async def test_a_payload_of_ten_thousand_slices_is_below_the_limit(name: str) -> None:
    """What is larger fails its activity, query or continue-as-new for ever. Some have up to 7 MiB
    before they are compressed, so what counts is what travels.
    """
    payloads = connection.SharedConverter().to_payloads([PAYLOADS[name]()])
    (sent,) = await connection.CompressionCodec().encode(payloads)

    assert sent.ByteSize() < MIB
