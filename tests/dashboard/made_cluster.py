"""A made cluster for the pages: values of any size, and sources that do not answer."""

import gzip
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import Any, cast
from urllib.parse import urlsplit

from temporalio.client import Client

from iris.client.client import AsyncIrisClient
from iris.client.connect.clusters import ClusterRecord
from iris.client.connect.rpc import Connection
from iris.client.fleet.simulations import SimulationsClient
from iris.client.jobs.lists import JobFilter
from iris.client.jobs.rows import JobRow
from iris.client.operate.worker_reports import AgentReport
from iris.dashboard.app import Dashboard
from iris.dashboard.reader import Reader
from iris.messages.autoscaler import AutoscalerStatus
from iris.messages.fleet_views import Holdings, QueuePage, QueueView
from iris.messages.scheduler import HostView, Snapshot, SnapshotPage, Totals
from iris.model.errors import NotFound, Unreachable
from iris.model.host.constraints import SCALE_GROUP
from iris.model.job.spec import Band
from iris.model.slice.status import SliceStatus
from iris.scheduling.ledger.ledger import Ledger
from iris.usage.report import UsageReport
from iris.workflows.scheduler.fleet_views import holdings_of, queue_of
from iris.workflows.scheduler.scheduler_views import snapshot_of, totals_of
from tests.builders import CHIPS, a_gang, a_gang_placement, a_slice, at
from tests.usage.made_uses import attempt, slice_use, summed


class _Schedules:
    def __init__(self, check: Callable[[str], None]) -> None:
        self._check = check

    async def list(self) -> Sequence[Any]:
        self._check("schedules")
        return ()


class _Client:
    """The parts of a client that pages use directly."""

    def __init__(self, check: Callable[[str], None], store: str) -> None:
        self.record = ClusterRecord(name="lab", address="127.0.0.1:1", store=store)
        self.schedules = _Schedules(check)
        # Its source is the store alone.
        self.simulations = SimulationsClient(Connection(cast(Client, None), self.record))


class MadeReader(Reader):
    """A reader of a made cluster. The names in `silent` are those of the methods whose source does
    not answer.
    """

    def __init__(
        self,
        ledger: Ledger | None = None,
        status: AutoscalerStatus | None = None,
        slices: Sequence[SliceStatus] = (),
        failures: Sequence[JobRow] = (),
        pools: Sequence[JobRow] = (),
        reports: Mapping[tuple[str, str], AgentReport] = MappingProxyType({}),
        silent: Sequence[str] = (),
        store: str = "memory://lab",
    ) -> None:
        super().__init__(cast(AsyncIrisClient, _Client(self._check, store)))
        self.ledger = ledger or Ledger()
        self._status = status or AutoscalerStatus()
        self._slices = {each.id: each for each in slices}
        self._failures = list(failures)
        self._pools = list(pools)
        self._reports = dict(reports)
        self._silent = silent

    def fall_silent(self, *names: str) -> None:
        """Only these sources do not answer from now on."""
        self._silent = names

    def _check(self, name: str) -> None:
        if name in self._silent:
            raise Unreachable(f"{name} are away")

    async def state(self, job: str = "") -> object:
        """It may always have changed."""
        return None

    async def snapshot(self) -> Snapshot:
        self._check("snapshot")
        return snapshot_of(self.ledger, SnapshotPage(limit=1))

    async def totals(self) -> Totals:
        self._check("totals")
        return totals_of(self.ledger, recovering=False)

    async def holdings(self) -> Holdings:
        self._check("holdings")
        return holdings_of(self.ledger)

    async def autoscaler(self) -> AutoscalerStatus:
        self._check("autoscaler")
        return self._status

    async def hosts(self) -> list[HostView]:
        self._check("hosts")
        found: list[HostView] = []
        while len(found) < len(self.ledger.hosts):
            found += snapshot_of(self.ledger, SnapshotPage(offset=len(found))).hosts
        return found

    async def reports(self) -> dict[tuple[str, str], AgentReport]:
        self._check("reports")
        return self._reports

    async def usage(self, by: tuple[str, ...], since: timedelta, user: str = "") -> UsageReport:
        self._check("usage")
        return summed(slice_use(0, 1, 72), attempt(1, 49), by=by)

    async def queue(
        self, band: Band | None, offset: int, limit: int, *, held: bool = False
    ) -> QueueView:
        self._check("queue")
        page = QueuePage(band=band, held=held, offset=offset, limit=limit)
        return queue_of(self.ledger, page, at(100), None)

    async def slice(self, slice_id: str) -> SliceStatus:
        if slice_id not in self._slices:
            raise NotFound(f"there is no slice {slice_id}")
        return self._slices[slice_id]

    async def jobs(self, wanted: JobFilter, limit: int) -> list[JobRow]:
        self._check("jobs")
        return self._failures[:limit]

    async def pools(self, limit: int) -> list[JobRow]:
        self._check("pools")
        return self._pools[:limit]

    async def shared(
        self, question: Any, ask: Callable[[], Awaitable[Any]], fresh: float = 0
    ) -> Any:
        """Asks each time. Other sources, such as the store, are empty."""
        if isinstance(question, tuple) and question[0] == "agent log":
            self._check("store")
            return ["INFO the host is ready", "ERROR the disk is \x1b[31mfull\x1b[0m <script>"]
        return await ask()


def a_fleet_of(slices: int, busy: int = 0, waiting: int = 0) -> Ledger:
    """TPU slices of four hosts, of which some are busy, and gangs that wait."""
    ledger = Ledger()
    for number in range(slices):
        name = f"tpus-{number:08x}"
        hosts = a_slice(name, attributes={SCALE_GROUP: "tpus"})
        ledger.hosts_up(hosts)
        if number < busy:
            user = f"user{number % 7}"
            ledger.adopt(
                a_gang_placement(
                    hosts, CHIPS, f"gang-{number}", user=user, task=f"{user}/train-{number}"
                )
            )
    for number in range(waiting):
        user = f"user{number % 9}"
        task = f"{user}/wait-{number}"
        ledger.ask(
            a_gang(
                f"{task}@1/run",
                user=user,
                task=task,
                owner=f"lab/job/{task}",
                submitted_at=at(number),
            )
        )
    ledger.settle(at(100), most=0 if waiting > 100 else None)
    return ledger


class Answer:
    """A page as a browser gets it."""

    def __init__(self, status: int, headers: dict[bytes, bytes], body: bytes) -> None:
        self.status = status
        self.headers = headers
        #: The size as it is sent.
        self.bytes = len(body)
        zipped = headers.get(b"content-encoding") == b"gzip"
        self.text = (gzip.decompress(body) if zipped else body).decode()


async def get(reader: Reader, address: str) -> Answer:
    """Asks the application for a page."""
    parts = urlsplit(address)
    scope = {
        "type": "http",
        "method": "GET",
        "scheme": "http",
        "http_version": "1.1",
        "path": parts.path,
        "raw_path": parts.path.encode(),
        "query_string": parts.query.encode(),
        "root_path": "",
        "server": ("127.0.0.1", 80),
        "headers": [(b"host", b"127.0.0.1"), (b"accept-encoding", b"gzip")],
    }
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        sent.append(message)

    await Dashboard(reader).app(scope, receive, send)
    body = b"".join(message.get("body", b"") for message in sent[1:])
    return Answer(sent[0]["status"], dict(sent[0]["headers"]), body)
