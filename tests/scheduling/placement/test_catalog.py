"""Reasons of requests that a scale group could serve with new slices, or that none could."""

from typing import Any

import pytest

from iris.model.job.requests import Request
from iris.model.rules import Rules
from iris.model.slice.scale_groups import ScaleGroup, SliceType
from iris.model.slice.scaling import Outlook
from iris.scheduling.placement.catalog import Catalog
from iris.scheduling.placement.cluster_state import ClusterState
from iris.scheduling.placement.host_index import HostIndex
from iris.scheduling.placement.place import place
from iris.scheduling.placement.queue import Queue
from iris.scheduling.placement.refusals import Refusal, RefusalCode
from iris.scheduling.reasons.forecast import forecast
from iris.scheduling.reasons.why_waiting import infeasible, no_scale_group, reason
from tests.builders import (
    NOON,
    TPU_HOST,
    a_fleet,
    a_gang,
    a_host,
    a_request,
    a_slice,
    demands,
    some,
)

NO_HOSTS = HostIndex()


def a_group(name: str = "tpus", **changes: Any) -> ScaleGroup:
    """TPU slices of four hosts, in two zones."""
    settings = {
        "type": SliceType.LOCAL_VM,
        "zones": ("eu-a", "eu-b"),
        "hosts": 4,
        "resources": TPU_HOST,
        "max_slices": 2,
    }
    return ScaleGroup(name=name, **{**settings, **changes})


def refusal_of(
    index: HostIndex, request: Request, *outlooks: Outlook, paused: str | None = None
) -> Refusal:
    state = ClusterState.of(
        index, [], {}, paused=paused, catalog=Catalog([a_group()]), outlooks=outlooks
    )
    return reason(state, request)


@pytest.mark.parametrize("index", [NO_HOSTS, a_fleet(a_host())], ids=["no host", "another host"])
def test_a_request_that_a_scale_group_can_serve_is_feasible(index: HostIndex) -> None:
    """The cluster may have no such host now; a warning would be wrong."""
    assert infeasible(index, a_gang(), Catalog([a_group()])) is None
    refusal = refusal_of(index, a_gang())
    assert refusal.code is RefusalCode.SCALING
    assert (
        refusal.message
        == "no present host can serve it; scale group tpus can create a slice that can"
    )


@pytest.mark.parametrize(
    ("present", "message"),
    [
        (8, "needs 9 cpu; a host of scale group tpus has 8 cpu when empty"),
        (
            4,
            (
                "needs 9 cpu; the only host of this kind has 4 cpu when empty; a host of scale"
                " group tpus has 8 cpu when empty"
            ),
        ),
    ],
)
@pytest.mark.parametrize(
    "outlook",
    ["", "needs 9 cpu; a host of scale group tpus has 8 cpu when empty", "needs 9 cpu; a ho…"],
)
def test_a_request_that_is_too_large_gets_each_reason_once(
    present: int, message: str, outlook: str
) -> None:
    """The present hosts, the scale groups and the autoscaler have the same to say of it; its text
    may be cut.
    """
    request = a_request(wants=some(cpu=9, device="tpu:v5litepod-16:4"))
    fleet = a_fleet(a_host("h1", some(cpu=present, memory=16, device="tpu:v5litepod-16:4")))
    outlooks = [Outlook(example=request, message=outlook, possible=False)] if outlook else []
    assert refusal_of(fleet, request, *outlooks).message == message


@pytest.mark.parametrize(
    ("request_", "code", "message"),
    [
        (
            a_gang(tasks=8),
            RefusalCode.NO_GROUP,
            "needs 8 hosts in one slice; the slices of scale group tpus have 4",
        ),
        (
            a_gang(tasks=12, groups=3),
            RefusalCode.NO_GROUP,
            "needs 3 slices; scale group tpus has max_slices 2",
        ),
        (
            a_gang(wants=some(cpu=9, device="tpu:v5litepod-16:4")),
            RefusalCode.TOO_BIG,
            "needs 9 cpu; a host of scale group tpus has 8 cpu when empty",
        ),
        (
            a_gang(wants=some(device="tpu:v6e-16:4")),
            RefusalCode.NO_DEVICE,
            "no scale group has tpu:v6e-16 (tpu:v5litepod-16 in scale group tpus)",
        ),
        (
            a_gang(constraints=demands("zone = us-a")),
            RefusalCode.CONSTRAINTS,
            (
                "zone = us-a excludes 2 of 2 zones of scale group tpus (zone is eu-a, eu-b); 2"
                " constraints in all"
            ),
        ),
        (
            a_gang(constraints=demands("tpu-worker-id = 0")),
            RefusalCode.CONSTRAINTS,
            (
                "tpu-worker-id = 0 excludes 6 of 8 hosts of new slices of scale group tpus"
                " (tpu-worker-id is 0, 1, 2, 3); 2 constraints in all"
            ),
        ),
        (
            a_request(wants=TPU_HOST, constraints=demands("tpu-worker-id = 9")),
            RefusalCode.CONSTRAINTS,
            (
                "tpu-worker-id = 9 excludes 8 of 8 hosts of new slices of scale group tpus"
                " (tpu-worker-id is 0, 1, 2, 3)"
            ),
        ),
        (
            a_gang(constraints=demands("tpu-worker-id != 0", "zone = eu-a")),
            RefusalCode.CONSTRAINTS,
            (
                "tpu-worker-id != 0 excludes 2 of 8 hosts of new slices of scale group tpus"
                " (tpu-worker-id is 0, 1, 2, 3); 3 constraints in all"
            ),
        ),
    ],
    ids=[
        *("more hosts", "more slices", "larger hosts", "another device", "another zone"),
        *("one host of a slice", "no host of a slice", "all hosts but one of a slice"),
    ],
)
def test_a_request_that_no_scale_group_can_serve_has_the_reason_and_a_remedy(
    request_: Request, code: RefusalCode, message: str
) -> None:
    """The same checks as for hosts, so the autoscaler's outlook and the scheduler's reason
    agree.
    """
    catalog = Catalog([a_group()])
    refusal = no_scale_group(catalog, request_)

    assert refusal is not None
    assert (refusal.code, refusal.message) == (code, message)
    assert refusal.remedy
    both = infeasible(NO_HOSTS, request_, catalog)
    assert both is not None
    assert both.code == code
    assert both.message.endswith(f"; {message}")


def a_pool(name: str = "boxes", machines: int = 3, **changes: Any) -> ScaleGroup:
    """Machines that exist already, in one zone."""
    settings = {
        "type": SliceType.MANUAL_VM,
        "zones": ("lab",),
        "hosts": 1,
        "max_slices": machines,
        "machines": machines,
    }
    return a_group(name, **{**settings, **changes})


@pytest.mark.parametrize(
    ("request_", "groups", "message", "remedy"),
    [
        (
            a_gang(tasks=5, group_by="zone"),
            [a_pool()],
            "needs 1 x 5 hosts that share zone; the pool of scale group boxes has 3 machines",
            "request fewer tasks, or add machines to hosts of scale group boxes",
        ),
        (
            a_gang(tasks=8, groups=2, group_by="zone"),
            [a_pool(), a_pool("old", 1)],
            (
                "needs 2 x 4 hosts that share zone; the pool of scale group boxes has 3 machines,"
                " that of old has 1"
            ),
            "request fewer tasks, or add machines to hosts of scale group boxes or old",
        ),
        (
            a_gang(tasks=4, groups=4),
            [a_pool()],
            "needs 4 slices; the pool of scale group boxes has 3 machines",
            "request fewer tasks, or add machines to hosts of scale group boxes",
        ),
        (
            a_gang(tasks=5, group_by="zone"),
            [a_pool(), a_group(hosts=1)],
            "needs 1 x 5 hosts that share zone; all scale groups together may not have that many",
            "request fewer tasks, or increase max_slices of a scale group",
        ),
        (
            a_gang(tasks=4, groups=4),
            [a_pool(max_slices=2)],
            "needs 4 slices; scale group boxes has max_slices 2",
            "increase max_slices of scale group boxes",
        ),
    ],
    ids=["one pool", "two pools", "several slices", "not only pools", "a limit below the pool"],
)
def test_a_gang_that_is_larger_than_a_pool_gets_the_size_of_the_pool(
    request_: Request, groups: list[ScaleGroup], message: str, remedy: str
) -> None:
    """A user who reads that max_slices has to grow would change it in vain: only more machines
    help.
    """
    refusal = no_scale_group(Catalog(groups), request_)

    assert refusal is not None
    assert (refusal.code, refusal.message, refusal.remedy) == (
        RefusalCode.NO_GROUP,
        message,
        remedy,
    )


@pytest.mark.parametrize(
    ("request_", "groups", "message"),
    [
        (
            a_gang(tasks=2),
            [a_group()],
            "needs 2 hosts in one slice; the slices of scale group tpus have 4",
        ),
        (
            a_gang(tasks=8, groups=2),
            [a_group(max_slices=1), a_group("more", max_slices=1)],
            "needs 2 slices; scale group tpus has max_slices 1",
        ),
    ],
)
def test_a_gang_for_which_no_slice_is_created_may_run_on_those_of_others(
    request_: Request, groups: list[ScaleGroup], message: str
) -> None:
    """A warning said that it could never run, `--require-feasible` refused it, and then it ran.
    While it waits it says why.
    """
    catalog = Catalog(groups)

    assert infeasible(NO_HOSTS, request_, catalog) is None
    waits = reason(ClusterState.of(NO_HOSTS, [], {}, paused=None, catalog=catalog), request_)
    assert waits.code is RefusalCode.NO_GROUP
    assert waits.message.endswith(f"; {message}")
    slices = [host for group in groups for host in a_slice(group.name)]
    assert place(HostIndex(slices), [], Queue([request_]), NOON, Rules()).placed


def test_a_constraint_that_one_zone_of_a_group_meets_is_feasible() -> None:
    """The autoscaler chooses the zone."""
    assert (
        infeasible(NO_HOSTS, a_gang(constraints=demands("zone = eu-b")), Catalog([a_group()]))
        is None
    )


def test_a_gang_over_several_slices_of_one_zone_is_feasible() -> None:
    """The autoscaler creates as many slices in the zone as the gang needs, so the scheduler must
    not call it impossible.
    """
    assert infeasible(NO_HOSTS, a_gang(tasks=8, group_by="zone"), Catalog([a_group()])) is None


def test_a_group_that_may_have_no_slices_creates_none() -> None:
    """An operator has switched it off."""
    refusal = infeasible(NO_HOSTS, a_gang(), Catalog([a_group(max_slices=0)]))
    assert refusal is not None
    assert refusal.code is RefusalCode.NO_HOSTS


def test_the_outlook_is_added_to_the_reason_with_its_time() -> None:
    """One answer has both: what is missing, and what the autoscaler does about it."""
    outlook = Outlook(
        example=a_gang(), message="slice s of scale group tpus is on its way", since=NOON
    )
    refusal = refusal_of(NO_HOSTS, a_gang("another"), outlook)

    assert refusal.message.endswith(f"; {outlook.message}")
    assert (refusal.scaling, refusal.since) == (outlook.message, NOON)


def test_the_reason_that_no_scale_group_can_serve_it_is_not_repeated() -> None:
    """The outlook of an infeasible request has the message that the reason has already."""
    request = a_gang(tasks=8)
    absent = no_scale_group(Catalog([a_group()]), request)
    assert absent is not None
    refusal = refusal_of(
        NO_HOSTS, request, Outlook(example=request, message=absent.message, possible=False)
    )

    assert refusal.message.count(absent.message) == 1
    assert refusal.scaling == absent.message


def test_an_outlook_belongs_to_its_shape_alone() -> None:
    """A slice for another job does not help this one."""
    outlook = Outlook(example=a_gang(), message="a slice is on its way")
    assert "on its way" not in refusal_of(NO_HOSTS, a_request(wants=TPU_HOST), outlook).message


def test_a_paused_cluster_has_no_outlook() -> None:
    """Another slice would not help while the cluster is paused."""
    refusal = refusal_of(
        a_fleet(*a_slice("there")),
        a_gang(),
        Outlook(example=a_gang(), message="on its way"),
        paused="",
    )
    assert (refusal.code, refusal.scaling) == (RefusalCode.PAUSED, "")


def test_a_dry_run_names_the_groups_without_slices() -> None:
    """What could be created counts as much as what is present; groups that are switched off do not
    appear.
    """
    catalog = Catalog([a_group(), a_group("small", hosts=1), a_group("off", max_slices=0)])
    found = forecast(NO_HOSTS, [], a_gang(), hosts=(), refusal=None, reserved={}, catalog=catalog)

    small = no_scale_group(Catalog([a_group("small", hosts=1)]), a_gang())
    assert small is not None
    assert {fit.group: fit.why for fit in found.fits} == {
        "tpus": "has no slice yet; the autoscaler can create one",
        "small": small.message,
    }


ZONE_GANG = a_gang(tasks=6, group_by="zone")


def test_a_gang_whose_members_need_slices_of_several_groups_is_feasible() -> None:
    """Its hosts must share a zone, and the scheduler does not mind whose they are. It was refused,
    and ran all the same.
    """
    small = Catalog([a_group("first", max_slices=1), a_group("second", max_slices=1)])
    apart = Catalog(
        [
            a_group("first", max_slices=1, zones=("eu-a",)),
            a_group("second", max_slices=1, zones=("eu-b",)),
        ]
    )

    assert infeasible(NO_HOSTS, ZONE_GANG, small) is None
    refusal = infeasible(NO_HOSTS, ZONE_GANG, apart)
    assert refusal is not None
    assert (
        "needs 1 x 6 hosts that share zone; all scale groups together may not have that many"
        in refusal.message
    )
    assert infeasible(NO_HOSTS, a_gang(tasks=12, groups=2, group_by="zone"), small) is not None


def test_hosts_that_joined_count_beside_new_slices() -> None:
    """Two hosts in the zone and a new slice of four make six. Hosts of a scale group are among
    those that it may create.
    """
    joined = a_fleet(*(a_host(f"own{n}", TPU_HOST, attributes={"zone": "eu-a"}) for n in range(2)))
    created = a_fleet(
        *(
            a_host(f"own{n}", TPU_HOST, attributes={"zone": "eu-a", "scale-group": "tpus"})
            for n in range(2)
        )
    )
    catalog = Catalog([a_group(max_slices=1)])

    assert infeasible(joined, ZONE_GANG, catalog) is None
    assert infeasible(created, ZONE_GANG, catalog) is not None


def test_members_on_one_worker_of_each_slice_are_feasible() -> None:
    """Each new slice has one such host, so a gang of two needs two slices."""
    gang = a_gang(tasks=2, group_by="zone", constraints=demands("tpu-worker-id = 0"))

    assert infeasible(NO_HOSTS, gang, Catalog([a_group(max_slices=2)])) is None
    assert infeasible(NO_HOSTS, gang, Catalog([a_group(max_slices=1)])) is not None
