"""Virtual machines, call by call. Compute's futures ask another address than the client; so calls answer with plain operations,
and those are asked for by name."""

from typing import Any

from google.cloud import compute_v1

from iris.platforms.gcp import marks
from iris.platforms.gcp.clients import DEADLINE, Calls, Clients
from iris.platforms.gcp.errors import CallFailed, Trouble, trouble_of_operation
from iris.platforms.gcp.limits import Urgency
from iris.platforms.gcp.requests import CreateRequest
from iris.platforms.gcp.sights import Sight, instance_sight
from iris.platforms.gcp.tpu import there

#: The most that Compute puts into one answer.
PAGE = 500


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

    async def failure(self, slice_id: str, zone: str, operation: str) -> Trouble | None:
        """Why there is nothing although it was asked for; None: nothing is known of any failure.

        Args:
            operation: the name of the operation; empty: whoever knew it is gone, and it is looked for among those of the zone.
        """
        if operation:
            request = compute_v1.GetZoneOperationRequest(project=self._project, zone=zone, operation=operation)
            found = await there(self._calls, lambda to: to.operations.get(request, retry=None, timeout=DEADLINE))
        else:
            found = await there(self._calls, lambda to: self._insert_of(to, slice_id, zone))
        done = found is not None and found.status == compute_v1.Operation.Status.DONE
        return trouble_of_operation(found) if found is not None and done else None

    def _insert_of(self, to: Clients, slice_id: str, zone: str) -> compute_v1.Operation | None:
        link = f"https://www.googleapis.com/compute/v1/projects/{self._project}/zones/{zone}/instances/{slice_id}"
        request = compute_v1.ListZoneOperationsRequest(
            project=self._project, zone=zone, filter=f'(targetLink = "{link}") AND (operationType = "insert")', max_results=1
        )
        page = next(iter(to.operations.list(request, retry=None, timeout=DEADLINE).pages))
        return next(iter(page.items), None)


async def list_instances(calls: Calls, project: str, uid: str) -> tuple[list[Sight], dict[str, str]]:
    """Every virtual machine of the project with the cluster's uid, and by zone why one did not answer."""
    found: list[Sight] = []
    unreachable: dict[str, str] = {}
    token = ""
    while True:
        request = compute_v1.AggregatedListInstancesRequest(
            project=project, filter=f"labels.{marks.UID}={uid}", max_results=PAGE, page_token=token
        )

        def call(to: Clients, request: compute_v1.AggregatedListInstancesRequest = request) -> Any:
            return next(iter(to.instances.aggregated_list(request, retry=None, timeout=DEADLINE).pages))

        page = await calls.make(Urgency.LOOK, call)
        for place, listed in page.items.items():
            found += map(instance_sight, listed.instances)
            if listed.warning.code == "UNREACHABLE":
                unreachable[_zone_of(place)] = listed.warning.message or "Compute Engine cannot reach the zone"
        unreachable.update({_zone_of(place): "Compute Engine cannot reach the zone" for place in page.unreachables})
        if not page.next_page_token:
            return found, unreachable
        token = page.next_page_token


def _begun(operation: compute_v1.Operation) -> str:
    """The name of an operation that has just begun.

    Raises:
        CallFailed: it has failed already.
    """
    if operation.status == compute_v1.Operation.Status.DONE and (trouble := trouble_of_operation(operation)) is not None:
        raise CallFailed(trouble)
    return operation.name


def _zone_of(place: str) -> str:
    return place.rpartition("/")[2]
