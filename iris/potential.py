"""What those who wait may hope for: hosts of slices that could be made, and what the autoscaler has said about it."""

import copy
from collections.abc import Iterable
from functools import cached_property

from iris.fleet import REMEMBERED_SHAPES, Fleet
from iris.gangs import Request, Shape
from iris.refusals import INFEASIBLE, Refusal, RefusalCode, infeasible
from iris.scale_groups import ScaleGroup
from iris.scale_plan import Outlook

#: For these reasons other hosts would be of use.
UNTIL_THERE_ARE_HOSTS = INFEASIBLE | {RefusalCode.BUSY, RefusalCode.CLOSED}
NO_GROUP = "no scale group can make one that could take it"


class Potential:
    """The kinds of slice that can be made, and what the autoscaler has said last to those who wait."""

    def __init__(self, groups: Iterable[ScaleGroup] = (), outlooks: Iterable[Outlook] = ()) -> None:
        self.groups = tuple(groups)
        self.outlooks = tuple(outlooks)
        self._by_shape = {outlook.example.shape: outlook for outlook in self.outlooks}
        self._makeable = [group for group in self.groups if group.max_slices]
        #: A slice of each kind in each of its zones, as if it were there; put together when somebody asks for it.
        self._slices: dict[tuple[str, str], Fleet] = {}
        #: The groups that could serve a shape: the same until the configuration changes, and asked for every batch of asks.
        self._could: dict[Shape, list[str]] = {}

    def told(self, outlooks: Iterable[Outlook]) -> "Potential":
        """The same, with other news for those who wait."""
        other = copy.copy(self)
        other.outlooks = tuple(outlooks)
        other._by_shape = {outlook.example.shape: outlook for outlook in other.outlooks}
        return other

    def infeasible(self, fleet: Fleet, request: Request) -> Refusal | None:
        """Why the request could not be served by all the hosts there are and all those that could be made; None: it could."""
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
        """The scale groups whose slices could serve it."""
        could = self._could.get(request.shape)
        if could is None:
            if len(self._could) >= REMEMBERED_SHAPES:
                self._could.clear()
            could = [group.name for group in self._makeable if self._why_not(group, request) == ""]
            self._could[request.shape] = could
        return could

    def cannot_make(self, request: Request) -> dict[str, str]:
        """Why the other scale groups could not, by their names."""
        could = self.could_make(request)
        return {group.name: self._why_not(group, request) for group in self._makeable if group.name not in could}

    def _why_not(self, group: ScaleGroup, request: Request) -> str:
        """Why no slice of the group could serve it; empty: one could, or as many as it wants together."""
        if group.max_slices < request.groups:
            return f"it may not have more than {group.max_slices} slices"
        one = request if request.groups == 1 else request.model_copy(update={"groups": 1, "tasks": request.group_size})
        refusal = None
        for zone in group.zones:
            if (refusal := infeasible(self._slice(group, zone), one)) is None:
                return ""
            if refusal.code in (RefusalCode.NO_DEVICE, RefusalCode.TOO_BIG):
                break  # it is the same in every zone
        return refusal.message if refusal is not None else "it has no zone"

    def _slice(self, group: ScaleGroup, zone: str) -> Fleet:
        if (group.name, zone) not in self._slices:
            self._slices[group.name, zone] = Fleet(group.slice_hosts(f"a-slice-of-{group.name}-in-{zone}", zone))
        return self._slices[group.name, zone]

    @cached_property
    def _one_of_each(self) -> Fleet:
        """A slice of each group: for saying what comes nearest."""
        return Fleet(host for group in self._makeable for host in self._slice(group, group.zones[0]).hosts)

    def explain(self, refusal: Refusal, fleet: Fleet, request: Request) -> Refusal:
        """The refusal of the hosts there are, with what is done about it."""
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
