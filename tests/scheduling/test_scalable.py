"""What those who wait may hope for: machines that there are not yet."""

from typing import Any

import pytest

from iris.model.requests import Request
from iris.model.scale_groups import ScaleGroup, SliceType
from iris.model.scaling import Outlook
from iris.scheduling.host_index import HostIndex
from iris.scheduling.refusals import Refusal, RefusalCode, infeasible
from iris.scheduling.scalable import Scalable
from tests.builders import NOON, TPU_HOST, a_fleet, a_gang, a_host, a_request, a_slice, demands, some

NOTHING = HostIndex()


def a_group(name: str = "tpus", **changes: Any) -> ScaleGroup:
    """TPU slices of four hosts, in two zones."""
    settings = {"type": SliceType.LOCAL_VM, "zones": ("eu-a", "eu-b"), "hosts": 4, "resources": TPU_HOST, "max_slices": 2}
    return ScaleGroup(name=name, **{**settings, **changes})


def explained(potential: Scalable, fleet: HostIndex, request: Request) -> tuple[RefusalCode, str]:
    refusal = infeasible(fleet, request)
    assert refusal is not None
    told = potential.explain(refusal, fleet, request)
    return told.code, told.message


def test_what_a_scale_group_can_make_is_not_impossible() -> None:
    """The cluster may have no such host now; who warns of that would be crying wolf."""
    potential = Scalable([a_group()])

    assert potential.infeasible(NOTHING, a_gang()) is None
    assert explained(potential, NOTHING, a_gang())[0] is RefusalCode.SCALING
    assert "scale group tpus can make one" in explained(potential, a_fleet(a_host()), a_gang())[1]


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (a_gang(tasks=8), "a gang wants whole slices of its size"),
        (a_gang(tasks=12, groups=3), "it may not have so many slices"),
        (a_gang(wants=some(cpu=9, device="tpu:v5litepod-16:4")), "its hosts are too small"),
        (a_gang(wants=some(device="tpu:v6e-16:4")), "its hosts have another device"),
        (a_gang(constraints=demands("zone = us-a")), "it is elsewhere"),
    ],
    ids=["more hosts", "more slices", "larger hosts", "another device", "another zone"],
)
def test_what_no_scale_group_can_make_stays_impossible(request_: Request, why: str) -> None:
    """A job that waits for ever has to be told at once."""
    potential = Scalable([a_group()])
    refusal = potential.infeasible(a_fleet(*a_slice("there")), request_)

    assert refusal is not None, why
    assert refusal.message.endswith("no scale group can make one that could take it")


def test_a_constraint_that_one_of_a_groups_zones_meets_is_possible() -> None:
    """The autoscaler chooses the zone for whoever waits."""
    assert Scalable([a_group()]).infeasible(NOTHING, a_gang(constraints=demands("zone = eu-b"))) is None


def test_a_group_that_may_have_no_slices_makes_none() -> None:
    """Somebody has switched it off."""
    refusal = Scalable([a_group(max_slices=0)]).infeasible(NOTHING, a_gang())
    assert refusal is not None
    assert refusal.code is RefusalCode.NO_HOSTS


def test_what_the_autoscaler_says_is_added_to_the_reason_with_its_time() -> None:
    """One answer has both: what is missing, and what is done about it."""
    outlook = Outlook(example=a_gang(), message="slice s of scale group tpus is on its way", since=NOON)
    refusal = infeasible(NOTHING, a_gang())
    assert refusal is not None
    told = Scalable([a_group()]).told([outlook]).explain(refusal, NOTHING, a_gang("another"))

    assert told.message.endswith("; slice s of scale group tpus is on its way")
    assert (told.scaling, told.since) == (outlook.message, NOON)


def test_other_shapes_do_not_hear_what_is_not_about_them() -> None:
    """A slice for somebody else's job is no hope for this one."""
    potential = Scalable([a_group()], [Outlook(example=a_gang(), message="a slice is on its way")])
    assert "on its way" not in explained(potential, NOTHING, a_request(wants=TPU_HOST))[1]


def test_a_dry_run_names_the_groups_without_slices() -> None:
    """What could be made counts as much as what is there."""
    potential = Scalable([a_group(), a_group("small", hosts=1), a_group("off", max_slices=0)])

    assert potential.could_make(a_gang()) == ["tpus"]
    assert set(potential.cannot_make(a_gang())) == {"small"}


def test_who_waits_for_another_reason_hears_nothing_of_slices() -> None:
    """The cluster is paused: that another slice is on its way would be no hope, and may be stale."""
    outlook = Outlook(example=a_gang(), message="slice s is on its way")
    paused = Refusal(code=RefusalCode.PAUSED, message="the cluster is paused")
    told = Scalable([a_group()], [outlook]).explain(paused, a_fleet(*a_slice("there")), a_gang())

    assert (told.message, told.scaling) == ("the cluster is paused", "")
