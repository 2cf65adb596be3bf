"""The difficult scenarios of Google Cloud, by number: the platform's part. The workflows' part is
in `tests/workflows/autoscaler/test_gcp_scenarios.py`.

After each, the fake's audit log matches its resources: no other owner's resource was touched, and
every resource has its call.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from random import Random

import pytest
from google.cloud import tpu_v2

from iris.model.slice.provisioning import (
    ANYWHERE,
    DeleteResult,
    MachineState,
    SliceFault,
    SliceRequest,
)
from iris.platforms.base import (
    MAX_OUTPUT_BYTES,
    BadConfig,
    PlatformError,
    QuotaExceeded,
    RateLimited,
    StockOut,
    Unavailable,
)
from iris.platforms.gcp import labels as label_rules
from iris.platforms.gcp import tpu
from iris.platforms.gcp.create_requests import create_request
from iris.platforms.gcp.lean_compute import compute_v1
from tests.fakes.google.client import FakeGoogle
from tests.platforms.gcp.requests import KEY, ZONE, gcp, tpu_group, vm_group
from tests.platforms.gcp.site import (
    CREATES,
    DELETES,
    GROUPS,
    OTHER,
    Site,
    comes_up,
    fails,
    goes,
    insists,
    seen,
)
from tests.platforms.worlds import until

S = MachineState
KINDS = sorted(GROUPS)


@pytest.fixture
def site(google: FakeGoogle) -> Iterator[Site]:
    site = Site(google)
    google.boot_time(0.2)
    google.delete_time(0.1)
    google.page_size(500)
    google.stale_lists()
    yield site
    google.clear()
    google.check(site.project)


@pytest.mark.parametrize("kind", KINDS)
async def test_scenario_01_a_create_whose_answer_was_lost_is_adopted(site: Site, kind: str) -> None:
    """The second call finds the slice of the first: no duplicate, no orphan."""
    site.google.commit_then_drop(CREATES[kind])
    platform, request = site.platform(), site.wanted(GROUPS[kind])
    with pytest.raises(Unavailable):
        await platform.create_slice(request)
    found = await platform.create_slice(request)

    assert (found.token, len(site.created())) == (request.token, 1)


async def test_scenario_01_a_create_that_takes_too_long_is_adopted(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deadline of the client does not show whether the create took effect."""
    monkeypatch.setattr(tpu, "DEADLINE", 0.3)
    platform, request = site.platform(), site.wanted()
    await platform.list_slices()  # the connection is there
    site.google.latency("CreateNode", 0.6, times=1)
    with pytest.raises(Unavailable):
        await platform.create_slice(request)
    found = await insists(platform.create_slice, request)

    assert (found.token, len(site.created())) == (request.token, 1)


@pytest.mark.parametrize("kind", KINDS)
async def test_scenario_02_the_next_worker_finds_the_slice_of_a_worker_that_died(
    site: Site, kind: str
) -> None:
    """The name of the operation is lost, so the resource itself is read."""
    request = site.wanted(GROUPS[kind])
    await site.platform().create_slice(request)
    after = site.platform()
    await after.create_slice(request)
    await comes_up(after, request.slice_id)

    assert len(site.created()) == 1


async def test_scenario_04_an_operation_that_never_ends_does_not_matter(site: Site) -> None:
    """The node shows the result."""
    site.google.operation("stuck")
    platform, request = site.platform(), site.wanted()
    await platform.create_slice(request)

    await comes_up(platform, request.slice_id)


@pytest.mark.parametrize("kind", ["node", "instance"])
async def test_scenario_05_a_lost_operation_does_not_matter(site: Site, kind: str) -> None:
    """The resource alone shows whether the slice exists."""
    site.google.operation("lost", verb="insert" if kind == "instance" else "create")
    platform, request = site.platform(), site.wanted(GROUPS[kind])
    await platform.create_slice(request)
    await comes_up(platform, request.slice_id)
    site.google.node(request.slice_id, vanish=True)

    assert await platform.describe_slice(request.slice_id, ZONE) is None


@pytest.mark.parametrize("forgotten", [False, True])
@pytest.mark.parametrize("kind", ["node", "instance"])
async def test_scenario_06_a_stock_out_after_the_acceptance_is_reported_as_one(
    site: Site, kind: str, forgotten: bool
) -> None:
    """Otherwise the slice would seem to vanish, and Iris would request the same zone at once."""
    kind_of = {"node": "v5litepod-16", "instance": "n2-standard-8"}[kind]
    site.google.capacity(ZONE, kind_of, 0, project=site.project)
    platform, request = site.platform(), site.wanted(GROUPS[kind])
    with contextlib.suppress(StockOut):  # the refusal may come before the acceptance was read
        await platform.create_slice(request)
    if forgotten:
        platform = site.platform()

    async def failed() -> bool:
        return (
            found := await platform.describe_slice(request.slice_id, ZONE)
        ) is not None and found.state is S.FAILED

    await until(failed)
    found = await seen(platform, request.slice_id)
    assert (found.fault, found.reason.startswith(f"{ZONE} is out: ")) == (
        SliceFault.STOCK_OUT,
        True,
    )
    await goes(platform, request.slice_id)
    assert (await platform.list_slices()).slices == ()
    elsewhere = site.wanted(GROUPS["node"], "-again", zone=OTHER)
    await platform.create_slice(elsewhere)
    await comes_up(platform, elsewhere.slice_id, OTHER)


@pytest.mark.parametrize("kind", ["node", "queued"])
async def test_scenario_07_a_used_up_quota_is_named_and_freed_by_deletes(
    site: Site, kind: str
) -> None:
    """A preempted node counts until it is deleted."""
    site.google.quota("v5litepod", "spot", "europe-west4", 16, project=site.project)
    platform, request, second = (
        site.platform(),
        site.wanted(GROUPS[kind]),
        site.wanted(GROUPS[kind], "-b"),
    )
    await platform.create_slice(request)
    await comes_up(platform, request.slice_id)
    site.google.preempt(request.slice_id, notice=0)

    with pytest.raises(QuotaExceeded, match=r"V5sPreemptibleLitepod.*europe-west4"):
        await platform.create_slice(second)
    await goes(platform, request.slice_id)
    await platform.create_slice(second)


@pytest.mark.parametrize("kind", ["node", "instance"])
async def test_scenario_07_a_quota_has_a_scope(site: Site, kind: str) -> None:
    """After a zone's quota Iris tries the next zone, after a region's not. A VM's quota error comes
    after the acceptance.
    """
    family, tier = ("v5litepod", "spot") if kind == "node" else ("n2", "on-demand")
    site.google.quota(
        family, tier, "europe-west4" if kind == "instance" else ZONE, 0, project=site.project
    )
    platform, request = site.platform(), site.wanted(GROUPS[kind])
    if kind == "node":
        with pytest.raises(
            QuotaExceeded,
            match=r"^quota TPUV5sPreemptibleLitepodPerProjectPerZoneForTPUAPI is used up",
        ) as refused:
            await platform.create_slice(request)
        assert refused.value.scope == ZONE
        await platform.create_slice(site.wanted(GROUPS[kind], "-b", zone=OTHER))
        return
    await platform.create_slice(request)

    async def failed() -> bool:
        return (await seen(platform, request.slice_id)).state is S.FAILED

    await until(failed)
    found = await seen(platform, request.slice_id)
    assert (found.fault, found.quota_scope, "n2_cpus" in found.reason) == (
        SliceFault.QUOTA,
        "europe-west4",
        True,
    )


@pytest.mark.parametrize(
    ("words", "scope"),
    [
        ("Quota 'GPUS_ALL_REGIONS' exceeded. Limit: 0.0 globally.", ANYWHERE),
        ("Quota 'NVIDIA_L4_GPUS' exceeded. Limit: 1.0 in region europe-west4.", "europe-west4"),
        (
            "Quota 'TPUV5pPerProjectPerZoneForTPUAPI' exhausted. Limit 8 in zone europe-west4-b",
            ZONE,
        ),
        ("Quota limit reached", "europe-west4"),
    ],
)
async def test_scenario_07_the_scope_of_a_quota_is_in_googles_message(
    site: Site, words: str, scope: str
) -> None:
    """Without one, the scope is the region: most quotas are regional."""
    site.google.fail("CreateNode", "RESOURCE_EXHAUSTED", details="quota", message=words)
    with pytest.raises(QuotaExceeded) as refused:
        await site.platform().create_slice(site.wanted())

    assert refused.value.scope == scope


async def test_scenario_09_a_preemption_during_the_creation_is_a_preemption(site: Site) -> None:
    """It is not a failure: no zone is out of stock, and no job uses a retry."""
    site.google.operation(
        "error", code=3, message="a bad request. update is not supported while in state PREEMPTED"
    )
    platform, request = site.platform(), site.wanted()
    await platform.create_slice(request)

    async def taken_back() -> bool:
        found = await platform.describe_slice(request.slice_id, ZONE)
        return found is not None and found.state is S.PREEMPTED

    await until(taken_back)
    await goes(platform, request.slice_id)


@pytest.mark.parametrize("kind", KINDS)
async def test_scenario_09_a_preemption_right_after_the_start_is_reported_and_deleted(
    site: Site, kind: str
) -> None:
    """Also in the list, which the autoscaler reads."""
    platform = site.platform()
    request = site.wanted(vm_group(preemptible=True) if kind == "instance" else GROUPS[kind])
    await platform.create_slice(request)
    await comes_up(platform, request.slice_id)
    site.google.preempt(request.slice_id, notice=0)

    async def taken_back() -> bool:
        states = {each.state for each in (await platform.list_slices()).slices}
        # Of a spot machine Google leaves nothing.
        return states == ({S.PREEMPTED} if kind != "instance" else set())

    await until(taken_back)
    await goes(platform, request.slice_id)
    assert site.alive() == []


@pytest.mark.parametrize("kind", ["node", "instance"])
async def test_scenario_12_a_vanished_slice_is_gone(site: Site, kind: str) -> None:
    """A preempted node sometimes just disappears."""
    platform, request = site.platform(), site.wanted(GROUPS[kind])
    await platform.create_slice(request)
    await comes_up(platform, request.slice_id)
    site.google.node(request.slice_id, vanish=True)

    assert await platform.describe_slice(request.slice_id, ZONE) is None
    assert await platform.delete_slice(request.slice_id, ZONE) is DeleteResult.GONE
    assert site.calls(DELETES[kind]) == 0


@pytest.mark.parametrize("kind", KINDS)
async def test_scenario_13_a_slice_deleted_during_its_creation_is_deleted_and_not_failed(
    site: Site, kind: str
) -> None:
    """Its create ends with an error because of the delete. Google may also be too busy for the
    delete at first.
    """
    site.google.boot_time(None)
    site.google.fail(DELETES[kind], "ABORTED", message="unable to queue the operation")
    platform, request = site.platform(), site.wanted(GROUPS[kind])
    await platform.create_slice(request)
    assert await platform.delete_slice(request.slice_id, ZONE) is DeleteResult.GOING
    await goes(platform, request.slice_id)

    assert site.calls(DELETES[kind]) == 2
    assert await platform.describe_slice(request.slice_id, ZONE) is None
    assert await site.platform().describe_slice(request.slice_id, ZONE) is None


@pytest.mark.parametrize("kind", KINDS)
async def test_scenario_14_a_slow_delete_is_requested_once_and_its_name_is_not_reused(
    site: Site, kind: str
) -> None:
    """It is GOING for as long as it takes, and a slice that is being deleted is never adopted."""
    site.google.delete_time(None)
    platform, request = site.platform(), site.wanted(GROUPS[kind])
    await platform.create_slice(request)

    for _ in range(4):
        assert await platform.delete_slice(request.slice_id, ZONE) is DeleteResult.GOING
    with pytest.raises(Unavailable, match="being deleted"):
        await platform.create_slice(request)
    assert site.calls(DELETES[kind]) == 1


@pytest.mark.parametrize("kind", KINDS)
async def test_scenario_15_deleting_a_slice_that_another_caller_deleted_succeeds(
    site: Site, kind: str
) -> None:
    """Before the read, or between the read and the delete."""
    if kind == "queued":  # which has no node then that would be deleted without it
        site.google.capacity(ZONE, "v5litepod-16", 0, project=site.project)
    platform, request = site.platform(), site.wanted(GROUPS[kind])
    await platform.create_slice(request)
    site.google.fail(DELETES[kind], "NOT_FOUND")
    assert await platform.delete_slice(request.slice_id, ZONE) is DeleteResult.GOING
    await goes(site.platform(), request.slice_id)

    for each in (platform, site.platform()):
        assert await each.delete_slice(request.slice_id, ZONE) is DeleteResult.GONE


async def test_scenario_16_and_17_last_output_is_the_end_of_the_console(site: Site) -> None:
    """Without a login, only the console explains why no agent reported. The script's last lines
    count, as many as fit.
    """
    platform, request = site.platform(), site.wanted(GROUPS["instance"])
    await platform.create_slice(request)
    await comes_up(platform, request.slice_id)
    assert await platform.last_output(request.slice_id, ZONE) == ""
    site.google.say(request.slice_id, "[    0.000000] Linux version 6.1\n" * 4_000)
    assert "Linux version" in await platform.last_output(request.slice_id, ZONE)
    for number in range(100):
        line = (
            f"google_metadata_script_runner[7]: startup-script: [iris-init] pulling, try {number}:"
            f" {'x' * 30}\n"
        )
        site.google.say(request.slice_id, line)
    site.google.say(
        request.slice_id,
        "startup-script: [iris-init] FAILED: could not pull registry/agent:1\n[   61.2] noise \n",
    )
    said = await platform.last_output(request.slice_id, ZONE)

    assert said.splitlines()[-1] == "[iris-init] FAILED: could not pull registry/agent:1"
    assert len(said.encode()) <= MAX_OUTPUT_BYTES
    assert "pulling, try 99" in said
    assert "pulling, try 3:" not in said


async def test_scenario_16_and_17_last_output_of_a_tpu_is_its_problems(site: Site) -> None:
    """The TPU API has no console; a healthy node has no problems."""
    platform, request = site.platform(), site.wanted()
    await platform.create_slice(request)
    await comes_up(platform, request.slice_id)
    assert await platform.last_output(request.slice_id, ZONE) == ""
    site.google.node(
        request.slice_id,
        health=3,
        note="worker 2 does not answer",
        endpoints=["10.1.1.1", "", "10.1.1.3"],
    )
    said = await platform.last_output(request.slice_id, ZONE)

    assert said.splitlines() == [
        "TPU node's health is TIMEOUT",
        "worker 2 does not answer",
        "worker 1 has no address",
    ]


async def test_scenario_16_and_17_last_output_of_a_queued_resource_is_its_state(site: Site) -> None:
    """It has no hosts with a console."""
    site.google.capacity(ZONE, "v5litepod-16", 0, project=site.project)
    platform, request = site.platform(), site.wanted(GROUPS["queued"])
    await platform.create_slice(request)

    async def waits() -> bool:
        return (
            await platform.last_output(request.slice_id, ZONE)
            == "queued resource is WAITING_FOR_RESOURCES"
        )

    await until(waits)


async def test_scenario_16_and_17_other_owners_and_missing_slices_have_no_output(
    site: Site,
) -> None:
    """Another cluster's console is private."""
    theirs = site.wanted(GROUPS["instance"])
    await site.platform(uid="u-2").create_slice(theirs)
    site.google.say(theirs.slice_id, "a secret\n")

    assert await site.platform().last_output(theirs.slice_id, ZONE) == ""
    assert await site.platform().last_output(f"{site.name}-none", ZONE) == ""
    assert site.calls("instances.getSerialPortOutput") == 0


@pytest.mark.parametrize(("state", "told"), [("REPAIRING", S.REPAIRING), (99, S.ACTIVE)])
async def test_scenario_19_maintenance_is_reported_and_is_not_a_loss(
    site: Site, state: str | int, told: S
) -> None:
    """The agents show whether the hosts are alive; the reason names an unknown state of
    Google's.
    """
    platform, request = site.platform(), site.wanted()
    await platform.create_slice(request)
    await comes_up(platform, request.slice_id)
    site.google.node(
        request.slice_id, state=state, health=5, endpoints=["10.1.1.1", "", "10.1.1.3"]
    )
    found = await seen(platform, request.slice_id)

    assert (found.state, str(state) in found.reason, found.hosts) == (told, True, 4)
    assert (await platform.list_slices()).slices == (found,)


async def test_scenario_20_an_unreachable_zone_is_unknown_and_others_work(site: Site) -> None:
    """Otherwise every slice of the zone would count as deleted."""
    platform = site.platform()
    there, elsewhere = site.wanted(), site.wanted(GROUPS["instance"], "-b", zone=OTHER)
    await platform.create_slice(there)
    await platform.create_slice(elsewhere)
    site.google.zone_down(ZONE)
    listing = await platform.list_slices()

    assert [each.slice_id for each in listing.slices] == [elsewhere.slice_id]
    assert set(listing.unreachable) == {ZONE}
    for call in (platform.describe_slice, platform.delete_slice):
        with pytest.raises(Unavailable, match=ZONE):
            await call(there.slice_id, ZONE)
    with pytest.raises(Unavailable, match=ZONE):
        await platform.create_slice(site.wanted(None, "-c"))
    await platform.create_slice(site.wanted(None, "-d", zone=OTHER))


async def test_scenario_20_an_unreachable_service_hides_its_slices_in_all_zones(site: Site) -> None:
    """The other service's slices are listed; only without both is there an error."""
    platform, machine = site.platform(), site.wanted(GROUPS["instance"])
    await platform.create_slice(machine)
    site.google.fail("ListNodes", "UNAVAILABLE")
    listing = await platform.list_slices()

    assert [each.slice_id for each in listing.slices] == [machine.slice_id]
    assert set(listing.unreachable) == {ANYWHERE}
    site.google.fail("List*", "UNAVAILABLE")
    site.google.fail("instances.aggregatedList", 503)
    with pytest.raises(Unavailable):
        await platform.list_slices()


async def test_scenario_21_a_storm_of_errors_delays_calls_and_loses_nothing(site: Site) -> None:
    """Every third call is refused or unanswered, some after they took effect. Yet each slice is
    created once and deleted.
    """
    dice, platform = Random(7), site.platform()
    requests = [site.wanted(GROUPS[KINDS[number % 3]], f"-{number}") for number in range(12)]

    async def lives(request: SliceRequest) -> None:
        await insists(platform.create_slice, request)

        async def gone() -> bool:
            return await insists(platform.delete_slice, request.slice_id, ZONE) is DeleteResult.GONE

        await until(gone)

    async def weather() -> None:
        methods = [*CREATES.values(), *DELETES.values(), "Get*", "instances.get"]
        for _ in range(10):
            method = dice.choice(methods)
            match dice.randrange(3):
                case 0:
                    site.google.fail(method, 503, times=2)
                case 1:
                    site.google.fail(method, 503, times=1)
                    site.google.commit_then_drop(method)
                case 2:
                    site.google.fail(method, 500, times=2)
            await asyncio.sleep(0.05)

    await asyncio.gather(weather(), *(lives(each) for each in requests))
    assert (len(site.created()), site.alive()) == (12, [])


@pytest.mark.parametrize(
    ("method", "kind"), [("CreateNode", "node"), ("instances.insert", "instance")]
)
async def test_scenario_21_the_requested_delay_is_observed(
    site: Site, method: str, kind: str
) -> None:
    """The next call waits for as long as the service requests."""
    loop = asyncio.get_running_loop()
    site.google.fail(
        method, 429, details="rate" if kind == "node" else "rateLimitExceeded", retry_after=1
    )
    platform, request = site.platform(), site.wanted(GROUPS[kind])
    with pytest.raises(RateLimited):
        await platform.create_slice(request)
    begun = loop.time()
    await platform.create_slice(request)

    assert loop.time() - begun >= 0.9


@pytest.mark.parametrize("kind", ["node", "instance"])
async def test_scenario_22_the_list_has_our_slices_without_those_marked_manual(
    site: Site, kind: str
) -> None:
    """A cleanup deletes what the list has."""
    platform = site.platform()
    ours = label_rules.owner_labels(gcp(project=site.project), "host")
    labels = {
        "lost": ours,
        "kept": {**ours, "iris-manual": "true"},
        "plain": {},
        "other": {**ours, "iris-uid": "u-2"},
        "master": {**ours, "iris-role": "controller"},
    }
    for name, each in labels.items():
        kind_of = "n2-standard-8" if kind == "instance" else "v5litepod-16"
        foreign = name not in ("lost", "master")
        site.google.seed_foreign(
            f"{site.name}-{name}", site.project, ZONE, kind, each, type=kind_of, foreign=foreign
        )

    assert [each.slice_id for each in (await platform.list_slices()).slices] == [
        f"{site.name}-lost"
    ]
    for name in ("kept", "plain", "other"):
        assert await platform.describe_slice(f"{site.name}-{name}", ZONE) is None
        assert await platform.delete_slice(f"{site.name}-{name}", ZONE) is DeleteResult.LEFT
    await goes(platform, f"{site.name}-lost")


async def test_scenario_22_a_queued_resource_without_a_node_is_listed(site: Site) -> None:
    """It would create its node one day. It has no labels of its own, so the labels of the requested
    node count.
    """
    site.google.capacity(ZONE, "v5litepod-16", 0, project=site.project)
    lost, theirs = site.wanted(GROUPS["queued"]), site.wanted(GROUPS["queued"], "-theirs")
    await site.platform().create_slice(lost)
    await site.platform(uid="u-2").create_slice(theirs)
    platform = site.platform()
    (listed,) = (await platform.list_slices()).slices

    assert (listed.slice_id, listed.state, listed.token) == (lost.slice_id, S.CREATING, lost.token)
    await goes(platform, lost.slice_id)
    assert site.alive() == [theirs.slice_id]


async def test_scenario_22_disks_are_deleted_with_their_machines(site: Site) -> None:
    """A disk without a machine costs money, and Iris does not search for disks."""
    for group in (vm_group(), vm_group(preemptible=True), vm_group(machine_type="g2-standard-8")):
        request = create_request(gcp(project=site.project), site.wanted(group), "", KEY)
        assert isinstance(request, compute_v1.InsertInstanceRequest)
        assert [each.auto_delete for each in request.instance_resource.disks] == [True]
    node = create_request(gcp(project=site.project), site.wanted(), "", KEY)
    assert isinstance(node, tpu_v2.CreateNodeRequest)
    assert not node.node.data_disks


async def test_scenario_23_a_uid_distinguishes_clusters_of_one_name_in_one_project(
    site: Site,
) -> None:
    """Two users with a cluster `dev` each must not delete each other's machines."""
    mine, theirs = site.platform(), site.platform(uid="u-2")
    request = site.wanted()
    await theirs.create_slice(request)

    assert (await mine.list_slices()).slices == ()
    with pytest.raises(BadConfig, match="already exists"):
        await mine.create_slice(request)
    assert await mine.delete_slice(request.slice_id, ZONE) is DeleteResult.LEFT
    assert (await seen(theirs, request.slice_id)).token == request.token


@pytest.mark.parametrize("state", ["FAILED", "SUSPENDED", "ACTIVE"])
@pytest.mark.parametrize("forgotten", [False, True])
async def test_scenario_24_a_suspended_queued_resource_is_deleted_with_force(
    site: Site, state: str, forgotten: bool
) -> None:
    """It holds quota until then. The delete returns a type that the client does not expect."""
    site.google.quota("v5litepod", "spot", "europe-west4", 16, project=site.project)
    platform, request = site.platform(), site.wanted(GROUPS["queued"])
    await platform.create_slice(request)
    await comes_up(platform, request.slice_id)
    if state != "ACTIVE":
        site.google.queued(request.slice_id, state)
    site.google.node(request.slice_id, vanish=True)
    site.google.operation("mistyped", verb="delete")
    if forgotten:
        platform = site.platform()

    assert (await seen(platform, request.slice_id)).state in (S.FAILED, S.PREEMPTED)
    (listed,) = (await platform.list_slices()).slices
    assert listed.state in (S.FAILED, S.PREEMPTED)
    await goes(platform, request.slice_id)
    assert site.alive() == []
    await platform.create_slice(site.wanted(GROUPS["queued"], "-new"))


async def test_scenario_24_a_node_without_its_queued_resource_is_deleted(site: Site) -> None:
    """The slice is gone only if neither is left."""
    platform, request = site.platform(), site.wanted(GROUPS["queued"])
    await platform.create_slice(request)
    await comes_up(platform, request.slice_id)
    site.google.delete_time(0.5, name=request.slice_id)
    results = [await platform.delete_slice(request.slice_id, ZONE) for _ in range(2)]
    await goes(platform, request.slice_id)

    assert results == [DeleteResult.GOING] * 2
    assert site.alive() == []


async def test_scenario_25_short_empty_and_overlapping_pages_are_one_list(site: Site) -> None:
    """Every slice is in it once."""
    platform = site.platform()
    requests = [
        site.wanted(GROUPS[kind], f"-{kind}-{number}") for kind in KINDS for number in range(3)
    ]
    await asyncio.gather(*(platform.create_slice(each) for each in requests))
    site.google.page_size(2, empty_pages=1, duplicates=True)

    listed = [each.slice_id for each in (await platform.list_slices()).slices]
    assert listed == sorted(each.slice_id for each in requests)


async def test_scenario_25_an_outdated_list_is_only_a_hint(site: Site) -> None:
    """A listed slice may be gone, and an unlisted one may exist."""
    platform, gone, new = site.platform(), site.wanted(), site.wanted(None, "-new")
    await platform.create_slice(gone)
    site.google.stale_lists(ghosts=60, lag=60)
    await goes(platform, gone.slice_id)
    await platform.create_slice(new)
    listed = [each.slice_id for each in (await platform.list_slices()).slices]

    assert new.slice_id not in listed
    assert await platform.describe_slice(gone.slice_id, ZONE) is None
    assert (await seen(platform, new.slice_id)).token == new.token


@pytest.mark.parametrize("kind", ["node", "instance"])
async def test_scenario_25_machines_that_appear_after_their_delete_are_deleted_again(
    site: Site, kind: str
) -> None:
    """The delete and the create ran at the same time, and the create finished last."""
    site.google.boot_time(None)
    site.google.delete_time(None)
    platform, request = site.platform(), site.wanted(GROUPS[kind])
    await platform.create_slice(request)
    assert await platform.delete_slice(request.slice_id, ZONE) is DeleteResult.GOING
    site.google.node(request.slice_id, state="READY" if kind == "node" else "RUNNING")
    site.google.delete_time(0.1)

    assert (await seen(platform, request.slice_id)).state is S.ACTIVE
    await goes(platform, request.slice_id)
    assert site.calls(DELETES[kind]) == 2


# -- more of the kind
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
async def test_expired_credentials_are_retried(site: Site, kind: str) -> None:
    """They are renewed automatically or by a person, so no slice fails."""
    status = 401 if kind == "instance" else "UNAUTHENTICATED"
    site.google.fail(CREATES[kind], status)
    platform, request = site.platform(), site.wanted(GROUPS[kind])
    with pytest.raises(Unavailable, match="credentials"):
        await platform.create_slice(request)

    await platform.create_slice(request)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_missing_role_fails_creates_and_retries_deletes(site: Site, kind: str) -> None:
    """A person has to grant the role; until then Iris continues to try to delete the machine."""
    platform, request = site.platform(), site.wanted(GROUPS[kind])
    await platform.create_slice(request)
    site.google.fail(DELETES[kind], "PERMISSION_DENIED", message="Permission denied on resource")
    site.google.fail(CREATES[kind], "PERMISSION_DENIED", message="Permission denied on resource")

    with pytest.raises(BadConfig, match=r"docs/gcp\.md"):
        await platform.create_slice(site.wanted(GROUPS[kind], "-b"))
    with pytest.raises(Unavailable, match="Permission denied"):
        await platform.delete_slice(request.slice_id, ZONE)
    await goes(platform, request.slice_id)


async def test_machines_in_a_zone_without_tpus_can_be_deleted(site: Site) -> None:
    """The TPU API returns a permission error for such a zone, which a new control plane also
    searches.
    """
    site.google.fail(
        "GetNode",
        "PERMISSION_DENIED",
        times=None,
        message=f"Location {ZONE} is not found or access is unauthorized.",
    )
    site.google.fail(
        "GetQueuedResource",
        "PERMISSION_DENIED",
        times=None,
        message=f"Location {ZONE} is not found",
    )
    request = site.wanted(GROUPS["instance"])
    await site.platform().create_slice(request)

    await goes(site.platform(), request.slice_id)


async def test_a_stopped_spot_machine_is_preempted_and_can_be_deleted(site: Site) -> None:
    """A person removed the setting that deletes it."""
    platform, request = site.platform(), site.wanted(vm_group(preemptible=True))
    await platform.create_slice(request)
    await comes_up(platform, request.slice_id)
    site.google.node(request.slice_id, state="TERMINATED")

    assert (await seen(platform, request.slice_id)).state is S.PREEMPTED
    await goes(platform, request.slice_id)


@pytest.mark.parametrize(
    ("fault", "error"),
    [(SliceFault.STOCK_OUT, "ZONE_RESOURCE_POOL_EXHAUSTED"), (SliceFault.QUOTA, "QUOTA_EXCEEDED")],
)
@pytest.mark.parametrize("preemptible", [False, True])
async def test_a_failed_create_is_not_read_as_a_preemption_or_a_delete(
    site: Site, preemptible: bool, fault: SliceFault, error: str
) -> None:
    """The machine is visible for a moment while Google removes it; otherwise Iris would request the
    same zone at once.
    """
    site.google.run(0)
    try:
        site.google.operation(
            "error",
            verb="insert",
            code=503 if fault is SliceFault.STOCK_OUT else 403,
            message=error,
        )
        platform, request = site.platform(), site.wanted(vm_group(preemptible=preemptible))
        await platform.create_slice(request)
        site.google.advance(0.11)
        (there,) = site.google.resources(site.project)
        found = await seen(platform, request.slice_id)
        (listed,) = (await platform.list_slices()).slices
    finally:
        site.google.run(1)

    assert there["state"] == "STOPPING"
    assert (found.state, found.fault) == (S.FAILED, fault)
    assert listed == found
    await goes(platform, request.slice_id)


async def test_an_error_without_details_is_classified_by_its_code(site: Site) -> None:
    """RESOURCE_EXHAUSTED without a known reason is a stock-out, and Iris tries the next zone."""
    site.google.operation("error", code=8, message="internal: 0x1f")
    platform, request = site.platform(), site.wanted()
    await platform.create_slice(request)
    await fails(platform, request.slice_id, SliceFault.STOCK_OUT)


async def test_an_invalid_group_is_refused_with_googles_message(site: Site) -> None:
    """The message names the field."""
    with pytest.raises(BadConfig, match="runtime_version"):
        await site.platform().create_slice(site.wanted(tpu_group(runtime_version="v9")))


async def test_a_list_without_permission_is_an_error_and_not_an_empty_fleet(site: Site) -> None:
    """An empty list would mean that every slice has vanished."""
    site.google.fail("List*", "PERMISSION_DENIED", times=None)
    site.google.fail("instances.aggregatedList", 403, times=None, details="forbidden")

    with pytest.raises(PlatformError, match="no permission"):
        await site.platform().list_slices()
