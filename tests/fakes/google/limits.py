"""Stock-outs and quotas."""

from collections.abc import Iterable

from iris.model.slice.scale_groups import region_of
from tests.fakes.google.records import QUEUED, Knobs, Resource


def is_full(knobs: Knobs, resources: Iterable[Resource], wanted: Resource) -> bool:
    """Whether some capacity that counts for it has no place for one more."""
    for zone, kind, tier, project, most in knobs.capacity:

        def counts(
            each: Resource,
            zone: str = zone,
            kind: str = kind,
            tier: str = tier,
            project: str = project,
        ) -> bool:  # bound as they are now
            return _fits(
                ((zone, each.zone), (kind, each.type), (tier, each.tier), (project, each.project))
            )

        if (
            counts(wanted)
            and sum(each.fills() and counts(each) for each in resources if each is not wanted)
            >= most
        ):
            return True
    return False


def quota_exceeded(knobs: Knobs, resources: Iterable[Resource], wanted: Resource) -> str:
    """The words of the quota that one more would go beyond; empty: none.

    Whatever has not been deleted counts, also when it is preempted, suspended or failed. Nodes
    count through the queued resource that has made them.
    """
    for family, tier, scope, project, most in knobs.quota:

        def counts(
            each: Resource,
            family: str = family,
            tier: str = tier,
            scope: str = scope,
            project: str = project,
        ) -> bool:  # bound as they are now
            if scope not in ("*", each.zone, region_of(each.zone)):
                return False
            return _fits(((family, each.family), (tier, each.tier), (project, each.project)))

        used = sum(
            each.units
            for each in resources
            if each is not wanted and not each.owner and counts(each)
        )
        if counts(wanted) and used + wanted.units > most:
            where = f"zone {scope}" if scope == wanted.zone else f"region {region_of(wanted.zone)}"
            return (
                f"Quota '{quota_name(wanted, per_zone=scope == wanted.zone)}' exhausted. Limit"
                f" {most} in {where}"
            )
    return ""


def quota_name(of: Resource, *, per_zone: bool) -> str:
    """As Google calls it."""
    family = {"v5litepod": "V5sLitepod", "v5p": "V5p", "v6e": "V6e", "v4": "V4"}.get(of.family)
    place = "PerZone" if per_zone else "PerRegion"
    if family is None:
        return f"{'PREEMPTIBLE_' if of.tier == 'spot' else ''}{of.family.upper()}_CPUS"
    if of.tier == "spot":
        family = (
            family.replace("V5sLitepod", "V5sPreemptibleLitepod")
            if "V5s" in family
            else f"Preemptible{family}"
        )
    return f"TPU{family}PerProject{place}ForTPUAPI"


def waiting_first(resources: Iterable[Resource]) -> list[Resource]:
    """Queued resources that wait for capacity, the oldest first."""
    waiting = (
        each for each in resources if each.kind == QUEUED and each.state == "WAITING_FOR_RESOURCES"
    )
    return sorted(waiting, key=lambda each: each.created)


def _fits(pairs: Iterable[tuple[str, str]]) -> bool:
    return all(pattern in ("*", value) for pattern, value in pairs)
