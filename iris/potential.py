"""What those who wait may hope for: hosts of slices that could be made, and what the autoscaler has said about it."""

import copy
from collections.abc import Iterable

from iris.fleet import Fleet
from iris.gangs import Request
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
        #: A slice of each kind in each of its zones, as if it were there.
        self._slices = [
            (group, Fleet(group.slice_hosts(f"a-slice-of-{group.name}-in-{zone}", zone)))
            for group in self.groups
            if group.max_slices
            for zone in group.zones
        ]

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
        if not self._slices:
            return refusal
        could_be = (host for _, made in self._slices for host in made.hosts)
        nearest = infeasible(Fleet((*fleet.hosts, *could_be)), request) or refusal
        return nearest.model_copy(update={"message": f"{refusal.message}; {NO_GROUP}"})

    def could_make(self, request: Request) -> list[str]:
        """The scale groups whose slices could serve it."""
        one = request if request.groups == 1 else request.model_copy(update={"groups": 1, "tasks": request.group_size})
        could = [group for group, made in self._slices if group.max_slices >= request.groups and infeasible(made, one) is None]
        return list(dict.fromkeys(group.name for group in could))

    def cannot_make(self, request: Request) -> dict[str, str]:
        """Why the other scale groups could not, by their names."""
        could = self.could_make(request)
        whys = ((group.name, infeasible(made, request)) for group, made in self._slices if group.name not in could)
        return {name: why.message if why else "it may not have so many slices" for name, why in whys}

    def explain(self, refusal: Refusal, fleet: Fleet, request: Request) -> Refusal:
        """The refusal of the hosts there are, with what is done about it."""
        outlook = self._by_shape.get(request.shape) if refusal.code in UNTIL_THERE_ARE_HOSTS else None
        if refusal.code in INFEASIBLE and self._slices:
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
