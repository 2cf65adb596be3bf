"""Makes the calls on virtual machines.

Compute's futures call another address than the client. Therefore the calls here return plain
operations, and code here gets an operation by its name.
"""

from datetime import UTC, datetime
from typing import Any

from iris.platforms.gcp import labels as label_rules
from iris.platforms.gcp.clients import DEADLINE, Calls, Clients, get_or_none, pages
from iris.platforms.gcp.create_requests import CreateRequest, zone_of
from iris.platforms.gcp.errors import CallFailed, api_error_of_operation
from iris.platforms.gcp.lean_compute import compute_v1
from iris.platforms.gcp.observe import CreateOperation, ObservedResource, observed_instance
from iris.platforms.gcp.rate_limiter import Urgency

#: The maximum number of items per page of an answer of the Compute API.
PAGE = 500
#: The maximum number of pages that one search for the operation that created a machine reads. An
#: empty page does not end the search, because other pages may follow.
MOST_PAGES = 5
#: The number of bytes that are read from the end of a console; Google keeps a million. The system
#: prints much text between the startup script's lines.
CONSOLE_END = 32 * 1024


class Instances:
    """The calls that manage virtual machines. Each virtual machine is a slice of one host."""

    def __init__(self, calls: Calls, project: str) -> None:
        self._calls = calls
        self._project = project

    async def create(self, request: CreateRequest) -> str:
        """Requests the machine. Returns the name of the operation that creates it."""
        return await self._calls.make(
            Urgency.CREATE,
            lambda to: _begun(to.instances.insert_unary(request, retry=None, timeout=DEADLINE)),
        )

    async def get(self, slice_id: str, zone: str) -> ObservedResource | None:
        request = compute_v1.GetInstanceRequest(project=self._project, zone=zone, instance=slice_id)
        found = await get_or_none(
            self._calls, lambda to: to.instances.get(request, retry=None, timeout=DEADLINE)
        )
        return observed_instance(found) if found is not None else None

    async def delete(self, slice_id: str, zone: str) -> None:
        """Deletes the machine. Sends no request id: with one, a repeated delete would get the
        failure of the earlier one.
        """
        request = compute_v1.DeleteInstanceRequest(
            project=self._project, zone=zone, instance=slice_id
        )
        await self._calls.make(
            Urgency.DELETE,
            lambda to: to.instances.delete_unary(request, retry=None, timeout=DEADLINE),
        )

    async def find_create_operation(
        self, slice_id: str, zone: str, operation: str
    ) -> CreateOperation | None:
        if operation:
            request = compute_v1.GetZoneOperationRequest(
                project=self._project, zone=zone, operation=operation
            )
            found = await get_or_none(
                self._calls, lambda to: to.operations.get(request, retry=None, timeout=DEADLINE)
            )
        else:
            found = max(await self._inserts_of(slice_id, zone), key=_begun_at, default=None)
        if found is None:
            return None
        done = found.status == compute_v1.Operation.Status.DONE
        return CreateOperation(found.name, done, api_error_of_operation(found) if done else None)

    async def last_output(self, slice_id: str, zone: str) -> str:
        """Returns the end of the serial console."""
        request = compute_v1.GetSerialPortOutputInstanceRequest(
            project=self._project, zone=zone, instance=slice_id, start=-CONSOLE_END
        )
        output = await get_or_none(
            self._calls,
            lambda to: to.instances.get_serial_port_output(request, retry=None, timeout=DEADLINE),
        )
        return output.contents if output is not None else ""

    async def _inserts_of(self, slice_id: str, zone: str) -> list[compute_v1.Operation]:
        """Returns the operations that create the machine, of those that Google still lists."""
        path = f"projects/{self._project}/zones/{zone}/instances/{slice_id}"
        link = f"https://www.googleapis.com/compute/v1/{path}"
        wanted = f'(targetLink = "{link}") AND (operationType = "insert")'

        def page(to: Clients, token: str) -> compute_v1.OperationList:
            request = compute_v1.ListZoneOperationsRequest(
                project=self._project, zone=zone, filter=wanted, max_results=PAGE, page_token=token
            )
            return next(iter(to.operations.list(request, retry=None, timeout=DEADLINE).pages))

        return [
            each async for listed in pages(self._calls, page, MOST_PAGES) for each in listed.items
        ]


async def list_instances(
    calls: Calls, project: str, uid: str
) -> tuple[list[ObservedResource], dict[str, str]]:
    """Returns the project's virtual machines with the cluster's uid, and the reason for each zone
    that did not answer.
    """
    found: list[ObservedResource] = []
    unreachable: dict[str, str] = {}

    def page(to: Clients, token: str) -> Any:
        request = compute_v1.AggregatedListInstancesRequest(
            project=project,
            filter=f"labels.{label_rules.UID}={uid}",
            max_results=PAGE,
            page_token=token,
        )
        return next(iter(to.instances.aggregated_list(request, retry=None, timeout=DEADLINE).pages))

    async for listed in pages(calls, page):
        found += map(observed_instance, instances_on(listed))
        unreachable |= silent_on(listed)
    return found, unreachable


def instances_on(page: compute_v1.InstanceAggregatedList) -> list[compute_v1.Instance]:
    """Returns the instances of all zones on the page."""
    return [each for listed in page.items.values() for each in listed.instances]


def silent_on(page: compute_v1.InstanceAggregatedList) -> dict[str, str]:
    """Returns the reason for each zone that did not answer. An iteration over the client's own
    pager would drop them.
    """
    silent = {zone_of(place): "Compute Engine cannot reach the zone" for place in page.unreachables}
    for place, listed in page.items.items():
        warning: Any = listed.warning  # the package's types confuse it with the built-in Warning
        if warning.code == "UNREACHABLE":
            silent[zone_of(place)] = warning.message or "Compute Engine cannot reach the zone"
    return silent


def _begun(operation: compute_v1.Operation) -> str:
    """Returns the name of an operation that has just started.

    Raises:
        CallFailed: the operation has failed already.
    """
    if (
        operation.status == compute_v1.Operation.Status.DONE
        and (api_error := api_error_of_operation(operation)) is not None
    ):
        raise CallFailed(api_error)
    return operation.name


def _begun_at(operation: compute_v1.Operation) -> datetime:
    return (
        datetime.fromisoformat(operation.insert_time)
        if operation.insert_time
        else datetime.min.replace(tzinfo=UTC)
    )
