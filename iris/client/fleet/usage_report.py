"""Answers who used a cluster, and what it cost, from the records of use in its store."""

import asyncio
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

from pydantic import ValidationError

from iris.client.connect.rpc import Connection
from iris.client.fleet.cluster_store import store_of
from iris.client.fleet.open_uses import uses_not_stored
from iris.client.fleet.usage_records import StoredUses, read_uses
from iris.client.logs.follow import reading_from
from iris.model import store_paths
from iris.model.errors import InvalidValue, Rejected, Unreachable, first_line
from iris.storage.object_store import Store
from iris.usage.accounting import Accounting
from iris.usage.budgets import BudgetUse, BudgetUses
from iris.usage.prices import PriceTable
from iris.usage.records import AttemptUse, SliceUse, Use
from iris.usage.report import UsageReport, parse_key
from iris.usage.sums import Question, UsageSums

#: The length of the period of a report if the caller gives no begin.
DEFAULT_TIME = timedelta(days=7)
#: The number of records that are summed before the event loop may run other work. Summing them
#: takes a few milliseconds.
_READ_TOGETHER = 500
#: The maximum size in bytes of the object with the prices. A job that can write to the store may
#: write a larger one.
_MOST_ACCOUNTING = 4 * 1024 * 1024


def question(
    by: Sequence[str],
    since: datetime | timedelta | None,
    until: datetime | None,
    *,
    user: str = "",
    group: str = "",
) -> Question:
    """Returns what to sum. The arguments are those of `ClusterClient.usage`.

    Raises:
        InvalidValue: a key is unknown or repeated, or the time is empty.
    """
    keys = [parse_key(key) for key in by]
    for key in keys:
        if keys.count(key) > 1:
            raise InvalidValue("by", key, "is given twice", "give each key once")
    begin, end = time_of(since, until, DEFAULT_TIME)
    return Question(begin, end, keys, user, group)


def time_of(
    since: datetime | timedelta | None, until: datetime | None, default: timedelta
) -> tuple[datetime, datetime]:
    """Returns the begin and the end of a time that a caller has given, by UTC.

    Args:
        since: the begin, or the length; None: `default` is the length.
        until: the end; None: now.

    Raises:
        InvalidValue: the time is empty.
    """
    end = _in_utc(until or datetime.now(UTC))
    length = default if since is None else since
    try:
        begin = end - length if isinstance(length, timedelta) else _in_utc(length)
    except OverflowError:
        remedy = "ask for a shorter time"
        raise InvalidValue(
            "since", length, "begins before the first year of the calendar", remedy
        ) from None
    if begin >= end:
        remedy = "ask for a time that begins before it ends"
        raise InvalidValue("since", begin.isoformat(), f"is not before {end.isoformat()}", remedy)
    return begin, end


def _in_utc(time: datetime) -> datetime:
    """Returns the time by UTC. A time without a zone is one by UTC."""
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


async def usage_report(connection: Connection, asked: Question) -> UsageReport:
    """Returns the sums over all uses: those in the cluster's store, and those of the present.

    Raises:
        Rejected: the cluster has no store.
        Unreachable, IrisError: the store does not answer.
    """
    store, cluster = store_of(connection), connection.record.name
    present, gaps = await present_uses(connection)
    accounting = await read_accounting(store, cluster)
    report = await report_of(store, cluster, asked, present, accounting)
    budgets = await read_budgets(store, cluster) if accounting.budgets else ()
    if asked.user:
        budgets = tuple(use for use in budgets if asked.user in use.users)
    return report.model_copy(update={"gaps": (*gaps, *report.gaps), "budgets": budgets})


async def present_uses(connection: Connection) -> tuple[Sequence[Use], tuple[str, ...]]:
    """Returns the uses that are not in the store, and what is missing, as sentences, if no control
    plane answers.
    """
    try:
        return await uses_not_stored(connection), ()
    except Unreachable as error:
        reason = first_line(error)
        return (), (f"what runs now, and what ended in the last minutes, is missing: {reason}",)


async def report_of(
    store: Store, cluster: str, asked: Question, present: Sequence[Use], accounting: Accounting
) -> UsageReport:
    """Returns the sums over the uses in a store and further ones.

    Lets other work of the event loop run in between.

    Args:
        present: uses that were not in the store before this call.

    Raises:
        Unreachable, IrisError: the store does not answer.
    """
    sums = UsageSums(asked, PriceTable(accounting.rates), accounting.team_of)
    # Slices come first, so that the prices of the attempts on them are known. Of an attempt that
    # was stored meanwhile, the record counts: it says how the attempt ended.
    slices = {use.id for use in present if isinstance(use, SliceUse)}
    attempts = {use.id: use for use in present if isinstance(use, AttemptUse)}
    for use in present:
        if use.id in slices:
            sums.add(use)
    read = 0
    stored = read_uses(store, cluster, asked.since, asked.until)
    with reading_from(store, "the records of use"):
        async for use in stored:
            if (read := read + 1) % _READ_TOGETHER == 0:
                await asyncio.sleep(0)
            attempts.pop(use.id, None)
            if use.id not in slices:
                sums.add(use)
    for use in attempts.values():
        sums.add(use)
    report = sums.report(accounting.currency)
    return report.model_copy(update={"gaps": tuple(gaps_of(stored))})


def gaps_of(uses: StoredUses) -> Iterator[str]:
    """Yields what is missing in the store, as far as it was read."""
    if uses.dropped:
        yield (
            f"the records of {uses.dropped:,} uses are lost, because the store did not answer for"
            " too long"
        )
    if uses.unreadable:
        yield (
            f"{uses.unreadable:,} records cannot be read; a later version of Iris may have written"
            " them"
        )


async def read_accounting(store: Store, cluster: str) -> Accounting:
    """Returns the prices and teams of the cluster, as its control plane wrote them into the store.

    Raises:
        Unreachable, IrisError: the store does not answer.
        Rejected: they cannot be read.
    """
    path = store_paths.accounting(cluster)
    with reading_from(store, "the prices"):
        content = await store.get(path, most=_MOST_ACCOUNTING)
    if content is None:
        return Accounting()
    try:
        return Accounting.model_validate_json(content)
    except ValidationError:
        raise Rejected(
            f"the prices in the store ({path}) cannot be read; restart the cluster's control plane,"
            " which writes them again"
        ) from None


async def read_budgets(store: Store, cluster: str) -> tuple[BudgetUse, ...]:
    """Returns how much of each budget is used, as the control plane last wrote it into the store.

    Raises:
        Unreachable, IrisError: the store does not answer.
    """
    with reading_from(store, "the budgets"):
        content = await store.get(store_paths.budget_uses(cluster), most=_MOST_ACCOUNTING)
    try:
        found = BudgetUses.model_validate_json(content).uses if content is not None else ()
    except ValidationError:  # the control plane writes it again within minutes
        return ()
    now = datetime.now(UTC)
    return tuple(use for use in found if now < use.until)
