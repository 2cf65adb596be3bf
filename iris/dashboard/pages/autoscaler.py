"""The autoscaler: what each scale group has and needs, and why it does not get more."""

from datetime import UTC, datetime

from iris.dashboard import scaling
from iris.dashboard.content import Address, Content
from iris.dashboard.hosts import job_of
from iris.dashboard.problems import of_autoscaler
from iris.dashboard.reader import Reader, part

#: The limit on actions of the autoscaler that the page shows.
MOST_ACTIONS = 50
#: The limit on shapes of waiting gangs for which the page shows the slice that they can expect.
MOST_OUTLOOKS = 50


async def load(reader: Reader, address: Address) -> Content:
    """Loads the page."""
    now = datetime.now(UTC)
    status = await reader.autoscaler()
    holdings = await part(reader.holdings())
    groups = {group.name: group for group in (status.settings.groups if status.settings else ())}
    return Content(
        "Autoscaler",
        {
            "status": status,
            "problems": list(of_autoscaler(status, now)),
            "settings": groups,
            "limits": scaling.limits(status),
            "counts_of": scaling.counts_of,
            "coming": scaling.coming(status),
            "leaving": scaling.leaving(status),
            "blocked": scaling.blocked(status, now),
            "holdings": holdings,
            "returns": scaling.returns(status, holdings.value.idle) if holdings.value else [],
            "outlooks": status.outlooks[:MOST_OUTLOOKS],
            "actions": status.actions[: -MOST_ACTIONS - 1 : -1],
            "job_of": job_of,
        },
    )
