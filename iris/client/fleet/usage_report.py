"""Answers who used a cluster, and what it cost, from the records of use in its store."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from pydantic import ValidationError

from iris.client.connect.rpc import Connection
from iris.client.fleet.usage_records import read_uses
from iris.client.logs.follow import reading_from
from iris.model import names
from iris.model.errors import InvalidValue, Rejected
from iris.storage.object_store import Store
from iris.usage.accounting import Accounting
from iris.usage.prices import PriceTable
from iris.usage.report import UsageReport, parse_key
from iris.usage.sums import Question, UsageSums

#: The length of the time, if the caller gives none.
DEFAULT_TIME = timedelta(days=7)
#: The most bytes of the prices in the store that are read. A job may be able to write there.
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
    end = (until or datetime.now(UTC)).astimezone(UTC)
    length = DEFAULT_TIME if since is None else since
    begin = end - length if isinstance(length, timedelta) else length.astimezone(UTC)
    if begin >= end:
        remedy = "ask for a time that begins before it ends"
        raise InvalidValue("since", begin.isoformat(), f"is not before {end.isoformat()}", remedy)
    return Question(begin, end, keys, user, group)


async def usage_report(connection: Connection, asked: Question) -> UsageReport:
    """Returns the sums over the records of use in the cluster's store.

    Raises:
        Rejected: the cluster has no store.
        Unreachable, IrisError: the store does not answer.
    """
    store = store_of(connection)
    accounting = await read_accounting(store, connection.record.name)
    sums = UsageSums(asked, PriceTable(accounting.rates), accounting.team_of)
    uses = read_uses(store, connection.record.name, asked.since, asked.until)
    with reading_from(store, "the records of use"):
        async for use in uses:
            sums.add(use)
    report = sums.report(accounting.currency)
    gaps = []
    if uses.dropped:
        gaps.append(
            f"the records of {uses.dropped:,} uses are lost, because the store did not answer for"
            " too long"
        )
    if uses.unreadable:
        gaps.append(
            f"{uses.unreadable:,} records cannot be read; a later version of Iris may have written"
            " them"
        )
    return report.model_copy(update={"gaps": tuple(gaps)})


async def read_accounting(store: Store, cluster: str) -> Accounting:
    """Returns the prices and teams of the cluster, as its control plane wrote them into the store.

    Raises:
        Unreachable, IrisError: the store does not answer.
        Rejected: they cannot be read.
    """
    path = names.accounting(cluster)
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


def store_of(connection: Connection) -> Store:
    """Returns the cluster's store.

    Raises:
        Rejected: it has none.
    """
    if not connection.record.store:
        raise Rejected(
            f"cluster {connection.record.name} has no store, so its use is not recorded; start its"
            " control plane with one"
        )
    return Store(connection.record.store)
