"""Measures the scheduler's ledger as one run passes it to the next: its size, and the time to write
and to read it.

The ledger passes through the converter and the codec that every client and worker has. The limits
are 2 MiB for one payload, and two seconds for a workflow task. The last workflow task of a run
writes the ledger, and the first one of the next run reads it. Compression and decompression do not
count in these two seconds, because the SDK runs the codec outside the workflow task.
"""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

from temporalio.converter import DataConverter

from benchmarks import paper
from benchmarks.passes import LATER, asked
from benchmarks.table import Row
from iris.client.connect.plugin import IrisPlugin
from iris.messages.scheduler import SchedulerStart
from iris.model.units import MIB
from iris.planners.ledger_messages import MAX_PLACEMENTS
from iris.scheduling.ledger.bounded_memory import REMEMBERED
from iris.scheduling.ledger.ledger import Ledger

TIMES = 3
#: The seconds that a workflow task may take without yielding.
PATIENCE = 2.0
T = TypeVar("T")


def measure(*, quick: bool) -> list[Row]:
    hosts, waiting = (2_000, 20_000) if quick else (10_000, 100_000)
    size = f"{waiting:,} waiting, {hosts:,} hosts"
    with paper.as_in_control_plane():
        ledger = _well_used(hosts, waiting)
        write, start = _best(lambda: SchedulerStart(cluster="prod", ledger=ledger.state()))
        converter = IrisPlugin().data_converter
        assert isinstance(converter, DataConverter)
        codec = converter.payload_codec
        assert codec is not None
        encode, payloads = _best(lambda: converter.payload_converter.to_payloads([start]))
        compress, (packed,) = _best(lambda: asyncio.run(codec.encode(payloads)))
        expand, plain = _best(lambda: asyncio.run(codec.decode([packed])))
        decode, (again,) = _best(
            lambda: converter.payload_converter.from_payloads(plain, [SchedulerStart])
        )
        read, same = _best(lambda: Ledger(again.ledger))
    assert same.state() == ledger.state()
    held = f"{len(ledger.live):,} hold hosts, {len(ledger.waiting):,} wait"
    plain_size = f"{payloads[0].ByteSize() / MIB:.1f} MiB plain; {held}"
    return [
        Row(
            f"the ledger at continue-as-new, MiB, {size}",
            packed.ByteSize() / MIB,
            target=2.0,
            format="{:.2f}",
            note=plain_size,
        ),
        Row(
            "writing it, s",
            write + encode,
            target=PATIENCE,
            format="{:.2f}",
            note=f"{write:.2f} to pack, {encode:.2f} as JSON; compressing it {compress:.2f}",
        ),
        Row(
            "reading it, s",
            decode + read,
            target=PATIENCE,
            format="{:.2f}",
            note=f"{decode:.2f} from JSON, {read:.2f} to unpack; decompressing it {expand:.2f}",
        ),
    ]


def _well_used(hosts: int, waiting: int) -> Ledger:
    """Returns the ledger of a full cluster, with the most remembered entries of the past."""
    ledger = asked(hosts, paper.requests(waiting))
    while ledger.settle(LATER, MAX_PLACEMENTS).stopped:
        pass
    for request in paper.requests(len(ledger.live), seed=5):
        ledger.ask(request)
    while ledger.settle(LATER, MAX_PLACEMENTS).stopped:
        pass
    for request in paper.requests(REMEMBERED, seed=4):
        ledger.forget(request.key)
    ledger.slice_down((host.id, f"{host.incarnation}-before") for host in paper.hosts(REMEMBERED))
    return ledger


def _best(work: Callable[[], T]) -> tuple[float, T]:
    """Returns the shortest of several times, and the result."""
    took = []
    for _ in range(TIMES):
        began = time.perf_counter()
        result = work()
        took.append(time.perf_counter() - began)
    return min(took), result
