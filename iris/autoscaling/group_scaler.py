"""Decides for one scale group which slices to create, which to delete, and which must wait."""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime

from iris.autoscaling import sizes
from iris.autoscaling.availability import (
    CHURN_WINDOW,
    StockOuts,
    clock,
    describe_stock_out,
    describe_used_up,
    group_availability,
    kind_of,
    most_per_minute,
    next_token,
    within_minute,
)
from iris.autoscaling.idle_slices import Shrinking, shrink
from iris.autoscaling.inventory import SliceInventory
from iris.autoscaling.packing import PlannedSlice, Pool, Supply
from iris.autoscaling.quotas import exhausted
from iris.model.slice.scale_groups import ScaleGroup
from iris.model.slice.scaling import Create, Drain, GroupMemory, Memory
from iris.scheduling.placement.catalog import CandidateGroup, Share

#: If too many slices of a group were short-lived, it requests at most this many new slices per
#: minute, and only up to its `min_slices`.
CHURNED_PER_MINUTE = 1


class GroupScaler:
    """Decides which slices of one scale group to create and to delete. `supply` is the group's
    capacity for the waiting gangs. After the gangs are packed, `decide` selects the slices.

    Args:
        group: the scale group. Its resources are those that the autoscaler has learned from earlier
            slices (`sizes.planned`).
        stock: the zones that are out of stock.
        promised: the scale group as the configuration has it, with the configured resources.
        paused: whether an operator has paused placement on the group's hosts.
    """

    def __init__(
        self,
        group: ScaleGroup,
        inventory: SliceInventory,
        memory: Memory,
        stock: StockOuts,
        now: datetime,
        *,
        promised: ScaleGroup,
        paused: bool = False,
    ) -> None:
        self.group, self.promised = group, promised
        self.inventory = inventory
        self.now = now
        self.remembered = memory.groups.get(group.name, GroupMemory())
        kind = kind_of(group)
        self.stocked_out = {
            zone: out for zone in group.zones if (out := stock.get((zone, kind))) is not None
        }
        self.used_up = exhausted(memory, kind, group.zones, now)
        self.availability = group_availability(
            group,
            self.remembered,
            stock,
            inventory.requested,
            inventory.total,
            now,
            paused=paused,
            used_up=self.used_up,
        )
        self.most_per_minute = most_per_minute(group, self.remembered, now)
        self.coming = inventory.planned(inventory.coming)
        self.idle = inventory.planned(inventory.idle)
        free = group.max_slices - inventory.total + len(inventory.leaving)
        if sizes.on_trial(promised, self.remembered, now):
            free = min(free, 1 - len(self.coming))
        self.supply = Supply(
            group,
            idle=_by_zone(self.idle),
            coming={} if paused else _by_zone(self.coming),
            free=0 if self.availability.turns_away else max(0, free),
            zones=frozenset(group.zones) - self.stocked_out.keys() - self.used_up.keys(),
        )
        self.creates: list[Create] = []
        self.shrinking = Shrinking()
        #: The number of new slices that are needed but that the current evaluation of the
        #: autoscaler does not request.
        self.lacking = 0
        #: When the limit on new slices per minute allows the next slice; None if the limit causes
        #: no delay.
        self.token_at: datetime | None = None
        #: The number of requested slices by purpose: "waiting gangs", "min_slices 1",
        #: "buffer_slices 1".
        self.requested_for: Counter[str] = Counter()

    def decide(self) -> None:
        """Selects the slices to create and the idle slices to delete. The waiting gangs must have
        been packed.
        """
        group, wanted = self.group, self.supply.wanted
        free = max(0, group.max_slices - self.inventory.total)
        tokens = max(
            0, self.most_per_minute - len(within_minute(self.remembered.scale_ups, self.now))
        )
        allowed = 0 if self.availability.turns_away else min(free, tokens)
        for slice in wanted[: 0 if self.availability.holds_up else allowed]:
            slice.requested = True
            self._request(slice.zone, _purpose(slice), "waiting gangs")
        waiting = len(wanted) - len(self.creates)
        least = max(0, group.min_slices - self.inventory.alive - len(self.creates))
        # While gangs wait, the buffer does not grow. Otherwise they would take its slices, and a
        # limit that delays slices for gangs would not hold.
        reserve = 0 if waiting else max(0, group.buffer_slices - self.spare - least)
        zone = next((zone for zone in group.zones if zone in self.supply.zones), group.zones[0])
        more = min(least + reserve, allowed - len(self.creates))
        if self.availability.churned:
            more = min(
                least,
                free,
                max(
                    0, CHURNED_PER_MINUTE - len(within_minute(self.remembered.scale_ups, self.now))
                ),
            )
        for number in range(more):
            why = (
                f"min_slices {group.min_slices}"
                if number < least
                else f"buffer_slices {group.buffer_slices}"
            )
            self._request(zone, why, why)
        self.lacking = waiting + least + reserve - more
        held_up = self.availability.turns_away or (
            self.availability.holds_up and least + reserve == more
        )
        if self.availability.churned and least > more:
            ups = (*self.remembered.scale_ups, *(self.now for _ in self.creates))
            self.token_at = next_token(ups, CHURNED_PER_MINUTE, self.now)
        if self.lacking and tokens < free and not held_up:
            ups = (*self.remembered.scale_ups, *(self.now for _ in self.creates))
            self.token_at = next_token(ups, self.most_per_minute, self.now)
        claimed = (slice.facts.id for slice in self.idle if slice.gangs and slice.facts is not None)
        self.shrinking = shrink(
            self.inventory, claimed, bool(wanted or self.creates), self.remembered, self.now
        )

    @property
    def shortfall(self) -> str:
        """The resources that the group's slices lack compared with the configuration, as a text;
        empty if they lack none.
        """
        return sizes.shortfall(self.promised, self.remembered, self.now)

    @property
    def drains(self) -> tuple[Drain, ...]:
        return (*self.inventory.drains, *self.shrinking.drains)

    @property
    def spare(self) -> int:
        """The number of idle or coming slices that no waiting gang needs."""
        return sum(not slice.gangs for slice in (*self.idle, *self.coming))

    @property
    def demand(self) -> int:
        """The number of new and coming slices that waiting gangs need."""
        return len(self.supply.wanted) + sum(slice.gangs > 0 for slice in self.coming)

    @property
    def target(self) -> int:
        """The number of slices that the group should have."""
        used = len(self.inventory.busy) + sum(slice.gangs > 0 for slice in self.idle)
        return min(
            max(used + self.demand + self.group.buffer_slices, self.group.min_slices),
            self.group.max_slices,
        )

    @property
    def free_at(self) -> datetime | None:
        """When the first of the slices that are being deleted no longer counts as capacity that
        becomes free soon; None if there is none.
        """
        return min(
            (
                each.changed_at + self.group.pace.requesting_timeout
                for each in self.inventory.leaving
            ),
            default=None,
        )

    def why_not(self, candidate: CandidateGroup | Share) -> str:
        """Returns why the group has no capacity for a request that it could serve."""
        if self.availability.turns_away:
            return self.availability.why
        quotas = [self.used_up[zone] for zone in candidate.zones if zone in self.used_up]
        out = [
            self.stocked_out[zone]
            for zone in candidate.zones
            if zone in self.stocked_out and zone not in self.used_up
        ]
        if quotas and len(out) + len(quotas) == len(candidate.zones):
            return describe_used_up(quotas[0])
        if len(out) == len(candidate.zones):
            return describe_stock_out(max(out, key=lambda each: each.times))
        if isinstance(candidate, Share) and self.supply.free > 0:
            return f"may have only {self.supply.free} more"
        return self.group.limit_reached

    def why_later(self) -> str:
        """Returns why a needed slice is not requested now."""
        if self.availability.turns_away or self.availability.holds_up:
            return self.availability.why
        if self.token_at is not None:
            return (
                f"scale_ups_per_minute allows {self.most_per_minute}, the next"
                f" {clock(self.token_at)}"
            )
        return f"{self.group.limit_reached} until a slice that is being deleted is gone"

    def waits_until(self) -> Iterable[datetime]:
        """Yields the times at which a needed slice could become possible without an event."""
        yield from (
            time
            for time in (self.availability.until, self.token_at, self.free_at)
            if time is not None
        )
        yield from (out.until for out in self.stocked_out.values())
        yield from (quota.until for quota in self.used_up.values())

    def remember(self) -> GroupMemory:
        """Returns the group's memory after this decision."""
        now, before = self.now, self.remembered
        update: dict[str, object] = {
            "scale_ups": (*within_minute(before.scale_ups, now), *(now for _ in self.creates)),
            "scale_downs": (
                *within_minute(before.scale_downs, now),
                *(now for _ in self.shrinking.drains),
            ),
            "lives": tuple(life for life in before.lives if now - life[0] < CHURN_WINDOW),
        }
        if self.creates:
            update["cooldown_until"] = now + self.group.pace.scale_up_delay
        for time, reason in (
            ("quota_until", "quota_reason"),
            ("backoff_until", "backoff_reason"),
            ("cooldown_until", ""),
        ):
            until = update.get(time, getattr(before, time))
            if isinstance(until, datetime) and until <= now:
                update |= {time: None} | ({reason: ""} if reason else {})
        return before.model_copy(update=update)

    def _request(self, zone: str, reason: str, purpose: str) -> None:
        self.creates.append(Create(group=self.group.name, zone=zone, reason=reason))
        self.requested_for[purpose] += 1


def _purpose(slice: PlannedSlice) -> str:
    assert slice.first is not None
    others = slice.gangs - 1
    return f"for {slice.first.task}" + (f" and {others} more" if others else "")


def _by_zone(slices: Iterable[PlannedSlice]) -> Pool:
    pool: Pool = {}
    for slice in slices:
        pool.setdefault(slice.zone, []).append(slice)
    return pool
