"""The state of the cluster from which the reasons of waiting requests are computed."""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from iris.model.job.requests import Placement, Shape
from iris.model.job.spec import Band
from iris.model.slice.scaling import Outlook
from iris.scheduling.placement.capacity import Capacity
from iris.scheduling.placement.catalog import NO_SCALE_GROUPS, Catalog
from iris.scheduling.placement.host_index import HostIndex


class ClusterState(NamedTuple):
    """The state of the cluster from which the scheduler computes why requests wait. One
    `ClusterState` serves all requests that are explained together.
    """

    host_index: HostIndex
    capacity: Capacity
    #: The capacity after the placements that are being evicted have stopped; None if there are
    #: none.
    after_evictions: Capacity | None
    #: The bands of the placements that are being evicted.
    evicting: list[Band]
    #: The same as `capacity`, but with the reservations of the last scheduling pass: a reserved
    #: host takes only gangs of the shape for which it is reserved. None if no host is reserved.
    reserved: Capacity | None
    #: Why the cluster is paused; None when it is not.
    paused: str | None
    #: The scale groups.
    catalog: Catalog
    #: The autoscaler's latest `Outlook` record for each shape of waiting gangs: the slice that they
    #: can expect.
    outlooks: Mapping[Shape, Outlook]

    @classmethod
    def of(
        cls,
        host_index: HostIndex,
        live: Iterable[Placement],
        reserved: Mapping[int, Shape],
        evicting: Collection[str] = (),
        paused: str | None = None,
        catalog: Catalog = NO_SCALE_GROUPS,
        outlooks: Iterable[Outlook] = (),
    ) -> "ClusterState":
        """Derives the state from the live placements.

        Args:
            reserved: the hosts that the last pass reserved, each with its shape.
            evicting: the keys of the placements that are being evicted.
        """
        live = list(live)
        capacity = Capacity.of(host_index, live)
        going = [each for each in live if each.key in evicting] if evicting else []
        with_reserved = capacity.without(()) if reserved else None
        if with_reserved is not None:
            with_reserved.keep_reserved(reserved)
        after = capacity.without(going) if going else None
        by_shape = {outlook.example.shape: outlook for outlook in outlooks}
        return cls(
            host_index,
            capacity,
            after,
            [each.band for each in going],
            with_reserved,
            paused,
            catalog,
            by_shape,
        )
