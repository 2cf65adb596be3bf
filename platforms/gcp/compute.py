"""Virtual machines, call by call. Compute's futures ask another address than the client; so calls answer with plain operations,
and those are asked for by name."""

from datetime import UTC, datetime
from typing import Any

from google.cloud import compute_v1

from iris.platforms.gcp import marks
from iris.platforms.gcp.clients import DEADLINE, Calls, Clients, pages, there
from iris.platforms.gcp.errors import CallFailed, trouble_of_operation
from iris.platforms.gcp.limits import Urgency
from iris.platforms.gcp.requests import CreateRequest, zone_of
from iris.platforms.gcp.sights import Making, Sight, instance_sight

#: The most that Compute puts into one answer.
PAGE = 500
#: Of operations; a page may be empty though others follow.
MOST_PAGES = 5
#: Bytes of a console that are looked at: its system says much between two words of the startup script. Google keeps a million.
CONSOLE_END = 32 * 1024


class Instances:
    """Virtual machines that are slices of one host each."""

    def __init__(self, calls: Calls, project: str) -> None:
        self._calls = calls
        self._project = project

    async def create(self, request: CreateRequest) -> str:
        """Ask for it; the name of the operation that makes it."""
        return await self._calls.make(
            Urgency.CREATE, lambda to: _begun(to.instances.insert_unary(request, retry=None, timeout=DEADLINE))
        )

    async def get(self, slice_id: str, zone: str) -> Sight | None:
        request = compute_v1.GetInstanceRequest(project=self._project, zone=zone, instance=slice_id)
        found = await there(self._calls, lambda to: to.instances.get(request, retry=None, timeout=DEADLINE))
        return instance_sight(found) if found is not None else None

    async def delete(self, slice_id: str, zone: str) -> None:
        """Without a request id: a delete that has failed must not be the answer to the one after it."""
        request = compute_v1.DeleteInstanceRequest(project=self._project, zone=zone, instance=slice_id)
        await self._calls.make(Urgency.DELETE, lambda to: to.instances.delete_unary(request, retry=None, timeout=DEADLINE))

    async def making(self, slice_id: str, zone: str, operation: str) -> Making | None:
        if operation:
            request = compute_v1.GetZoneOperationRequest(project=self._project, zone=zone, operation=operation)
            found = await there(self._calls, lambda to: to.operations.get(request, retry=None, timeout=DEADLINE))
        else:
            found = max(await self._inserts_of(slice_id, zone), key=_begun_at, default=None)
        if found is None:
            return None
        done = found.status == compute_v1.Operation.Status.DONE
        return Making(found.name, done, trouble_of_operation(found) if done else None)

    async def last_words(self, slice_id: str, zone: str) -> str:
        """The end of its serial console."""
        request = compute_v1.GetSerialPortOutputInstanceRequest(
            project=self._project, zone=zone, instance=slice_id, start=-CONSOLE_END
        )
        said = await there(self._calls, lambda to: to.instances.get_serial_port_output(request, retry=None, timeout=DEADLINE))
        return said.contents if said is not None else ""

    async def _inserts_of(self, slice_id: str, zone: str) -> list[compute_v1.Operation]:
        """The operations that were to make it, of those that Google remembers."""
        link = f"https://www.googleapis.com/compute/v1/projects/{self._project}/zones/{zone}/instances/{slice_id}"
        wanted = f'(targetLink = "{link}") AND (operationType = "insert")'

        def page(to: Clients, token: str) -> compute_v1.OperationList:
            request = compute_v1.ListZoneOperationsRequest(
                project=self._project, zone=zone, filter=wanted, max_results=PAGE, page_token=token
            )
            return next(iter(to.operations.list(request, retry=None, timeout=DEADLINE).pages))

        return [each async for listed in pages(self._calls, page, MOST_PAGES) for each in listed.items]


async def list_instances(calls: Calls, project: str, uid: str) -> tuple[list[Sight], dict[str, str]]:
    """Every virtual machine of the project with the cluster's uid, and by zone why one did not answer."""
    found: list[Sight] = []
    unreachable: dict[str, str] = {}

    def page(to: Clients, token: str) -> Any:
        request = compute_v1.AggregatedListInstancesRequest(
            project=project, filter=f"labels.{marks.UID}={uid}", max_results=PAGE, page_token=token
        )
        return next(iter(to.instances.aggregated_list(request, retry=None, timeout=DEADLINE).pages))

    async for listed in pages(calls, page):
        found += map(instance_sight, instances_on(listed))
        unreachable |= silent_on(listed)
    return found, unreachable


def instances_on(page: compute_v1.InstanceAggregatedList) -> list[compute_v1.Instance]:
    """What is listed, wherever it is."""
    return [each for listed in page.items.values() for each in listed.instances]


def silent_on(page: compute_v1.InstanceAggregatedList) -> dict[str, str]:
    """By zone why it did not answer; an iteration over the client's own pager would not tell them."""
    silent = {zone_of(place): "Compute Engine cannot reach the zone" for place in page.unreachables}
    for place, listed in page.items.items():
        warning: Any = listed.warning  # taken for the built-in class of that name by the package's types
        if warning.code == "UNREACHABLE":
            silent[zone_of(place)] = warning.message or "Compute Engine cannot reach the zone"
    return silent


def _begun(operation: compute_v1.Operation) -> str:
    """The name of an operation that has just begun.

    Raises:
        CallFailed: it has failed already.
    """
    if operation.status == compute_v1.Operation.Status.DONE and (trouble := trouble_of_operation(operation)) is not None:
        raise CallFailed(trouble)
    return operation.name


def _begun_at(operation: compute_v1.Operation) -> datetime:
    return datetime.fromisoformat(operation.insert_time) if operation.insert_time else datetime.min.replace(tzinfo=UTC)
