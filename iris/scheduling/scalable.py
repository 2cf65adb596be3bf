"""Determines which scale groups could serve a waiting request, and adds the autoscaler's outlook to refusals."""

import copy
from collections.abc import Iterable
from functools import cached_property

from iris.model.requests import Request, Shape
from iris.model.scale_groups import ScaleGroup
from iris.model.scaling import Outlook
from iris.scheduling.host_index import REMEMBERED_SHAPES, HostIndex
from iris.scheduling.refusals import INFEASIBLE, Refusal, RefusalCode, infeasible

#: The codes of refusals that additional hosts could end.
UNTIL_THERE_ARE_HOSTS = INFEASIBLE | {RefusalCode.BUSY, RefusalCode.CLOSED}
NO_GROUP = "no scale group can make one that could take it"


class Scalable:
    """The scale groups that can make slices, and the autoscaler's latest outlook for each waiting shape."""

    def __init__(self, groups: Iterable[ScaleGroup] = (), outlooks: Iterable[Outlook] = ()) -> None:
        self.groups = tuple(groups)
        self.outlooks = tuple(outlooks)
        self._by_shape = {outlook.example.shape: outlook for outlook in self.outlooks}
        self._makeable = [group for group in self.groups if group.max_slices]
        #: The hosts of a hypothetical slice of each group in each of its zones, made on first use.
        self._slices: dict[tuple[str, str], HostIndex] = {}
        #: Cached: the groups that could serve a shape. They stay the same until the configuration changes, and every batch of
        #: requests needs them.
        self._could: dict[Shape, list[str]] = {}

    def told(self, outlooks: Iterable[Outlook]) -> "Scalable":
        """Returns a copy with other outlooks."""
        other = copy.copy(self)
        other.outlooks = tuple(outlooks)
        other._by_shape = {outlook.example.shape: outlook for outlook in other.outlooks}
        return other

    def infeasible(self, fleet: HostIndex, request: Request) -> Refusal | None:
        """Returns why no host, present or possible, could ever serve the request; None when some host could."""
        refusal = infeasible(fleet, request)
        if refusal is None or self.could_make(request):
            return None
        if not self._makeable:
            return refusal
        nearest = infeasible(self._one_of_each, request) or refusal
        return refusal.model_copy(
            update={
                "code": nearest.code if refusal.code is RefusalCode.NO_HOSTS else refusal.code,
                "message": f"{refusal.message}; {NO_GROUP}",
                "remedy": nearest.remedy,
            }
        )

    def could_make(self, request: Request) -> list[str]:
        """Returns the names of the scale groups whose slices could serve the request."""
        could = self._could.get(request.shape)
        if could is None:
            if len(self._could) >= REMEMBERED_SHAPES:
                self._could.clear()
            could = [group.name for group in self._makeable if self._why_not(group, request) == ""]
            self._could[request.shape] = could
        return could

    def cannot_make(self, request: Request) -> dict[str, str]:
        """Returns, by name, why each of the other scale groups could not serve the request."""
        could = self.could_make(request)
        return {group.name: self._why_not(group, request) for group in self._makeable if group.name not in could}

    def _why_not(self, group: ScaleGroup, request: Request) -> str:
        """Returns why slices of the group could not serve the request; empty when they could."""
        if group.max_slices < request.groups:
            return f"it may not have more than {group.max_slices} slices"
        one = request if request.groups == 1 else request.model_copy(update={"groups": 1, "tasks": request.group_size})
        refusal = None
        for zone in group.zones:
            if (refusal := infeasible(self._slice(group, zone), one)) is None:
                return ""
            if refusal.code in (RefusalCode.NO_DEVICE, RefusalCode.TOO_BIG):
                break  # the result is the same in every zone
        return refusal.message if refusal is not None else "it has no zone"

    def _slice(self, group: ScaleGroup, zone: str) -> HostIndex:
        if (group.name, zone) not in self._slices:
            self._slices[group.name, zone] = HostIndex(group.slice_hosts(f"a-slice-of-{group.name}-in-{zone}", zone))
        return self._slices[group.name, zone]

    @cached_property
    def _one_of_each(self) -> HostIndex:
        """The hosts of one slice of each group, to find the nearest alternative."""
        return HostIndex(host for group in self._makeable for host in self._slice(group, group.zones[0]).hosts)

    def explain(self, refusal: Refusal, fleet: HostIndex, request: Request) -> Refusal:
        """Returns the refusal extended by what the scale groups could make and what the autoscaler does about it."""
        outlook = self._by_shape.get(request.shape) if refusal.code in UNTIL_THERE_ARE_HOSTS else None
        if refusal.code in INFEASIBLE and self._makeable:
            never = self.infeasible(fleet, request)
            refusal = never if never is not None else self._to_be_made(refusal, request)
        if outlook is None:
            return refusal
        told = f"{refusal.message.removesuffix(f'; {NO_GROUP}')}; {outlook.message}"
        return refusal.model_copy(update={"message": told, "scaling": outlook.message, "since": outlook.since})

    def _to_be_made(self, refusal: Refusal, request: Request) -> Refusal:
        could = self.could_make(request)
        told = f"scale group{'s' if len(could) > 1 else ''} {', '.join(could[:3])}{' …' if len(could) > 3 else ''}"
        return Refusal(
            code=RefusalCode.SCALING,
            message=f"no host there is could take it; {told} can make one",
            needed=refusal.needed,
            hosts=refusal.hosts,
            remedy="it starts when a slice has been made: iris autoscaler status",
        )
