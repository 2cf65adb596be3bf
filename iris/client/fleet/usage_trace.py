"""Exports the workload of a time from the records of use, for a simulation."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from iris.client.connect.rpc import Connection
from iris.client.fleet.cluster_store import store_of
from iris.client.fleet.usage_records import read_uses
from iris.client.fleet.usage_report import gaps_of, present_uses
from iris.client.logs.follow import reading_from
from iris.simulation.past import trace_of
from iris.simulation.trace import Trace, to_lines
from iris.storage.object_store import Store
from iris.usage.records import Use
from iris.usage.sums import Question


class UsageTrace(NamedTuple):
    """A trace of the workload of a period, and the gaps in it."""

    trace: Trace
    #: The kinds of data that are missing in the trace, one sentence for each; empty if none is
    #: known to be missing.
    gaps: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        """Yields the lines of a file that has the workload."""
        return to_lines(self.trace)


async def usage_trace(connection: Connection, asked: Question, *, names: bool) -> UsageTrace:
    """Returns the workload and the slices of a time.

    Args:
        names: whether the trace has the names of users and jobs.

    Raises:
        Rejected: the cluster has no store.
        Unreachable, IrisError: the store does not answer.
    """
    present, gaps = await present_uses(connection)
    store, cluster = store_of(connection), connection.record.name
    made = await made_trace(store, cluster, asked, present, names=names)
    return made._replace(gaps=(*gaps, *made.gaps))


async def made_trace(
    store: Store, cluster: str, asked: Question, present: Sequence[Use], *, names: bool
) -> UsageTrace:
    """Returns the trace of the uses in a store and of further ones.

    Args:
        present: uses that were not in the store before this call.

    Raises:
        Unreachable, IrisError: the store does not answer.
    """
    # Of a use that was stored meanwhile, the record counts: it says how the use ended.
    uses = {use.id: use for use in present}
    stored = read_uses(store, cluster, asked.since, asked.until)
    with reading_from(store, "the records of use"):
        async for use in stored:
            uses[use.id] = use
    trace = await asyncio.to_thread(trace_of, uses.values(), asked.since, asked.until, names=names)
    return UsageTrace(trace, tuple(gaps_of(stored)))
