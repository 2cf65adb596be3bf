"""What a gang counts against quotas."""

from collections.abc import Mapping

from iris.model.host.resources import DeviceKind, Resources
from iris.model.job.requests import Placement, Request
from iris.model.quotas import NAMED


def amounts_of(gang: Request | Placement) -> Mapping[str, int]:
    """Returns the amounts of a gang by resource, without those that are zero.

    A gang counts each of its hosts, also one that it shares with other gangs.
    """
    hosts = gang.tasks if isinstance(gang, Request) else len(gang.seats)
    return _amounts(gang.resources, hosts, gang.claim.limits)


def _amounts(
    resources: Resources, hosts: int, limits: tuple[tuple[str, int], ...]
) -> dict[str, int]:
    devices, millicores, memory, _ = resources.vector
    found = {"cpus": millicores * hosts, "memory": memory * hosts, "hosts": hosts}
    if resources.device is not None:
        kind = "chips" if resources.device.kind is DeviceKind.TPU else "gpus"
        found[kind] = devices * hosts
    for name, amount in limits:
        found[NAMED + name] = amount
    return {resource: amount for resource, amount in found.items() if amount}
