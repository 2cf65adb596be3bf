"""How the platform for Google Cloud is created and makes calls, and how it treats slices that are
not visible.
"""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.api_core import exceptions

from iris.client.operate.platforms import create_platform
from iris.config import load_config
from iris.model.errors import InvalidValue
from iris.model.slice.provisioning import ANYWHERE, DeleteResult, MachineState, SliceFault
from iris.platforms.base import QuotaExceeded, Unavailable
from iris.platforms.gcp import clients, tpu
from iris.platforms.gcp import platform as gcp_platform
from iris.platforms.gcp.clients import Calls, Clients, connect
from iris.platforms.gcp.errors import CallFailed
from iris.platforms.gcp.platform import CREATE_TIMEOUT_S, INVISIBLE_TIMEOUT_S, GcpPlatform
from iris.platforms.gcp.rate_limiter import Urgency
from iris.platforms.gcp.settings import GcpSettings, gcp_settings
from iris.workflows import policies
from tests.fakes.google.client import FakeGoogle
from tests.platforms.gcp.requests import ZONE, gcp
from tests.platforms.gcp.site import CREATES, GROUPS, Site, comes_up, fails, goes
from tests.platforms.worlds import until

EXAMPLE = Path(__file__).parents[3] / "examples" / "eu-west4.yaml"
PLAIN = gcp(tpu_endpoint="grpc://127.0.0.1:1", compute_endpoint="http://127.0.0.1:1")


def test_a_configuration_for_google_cloud_creates_its_platform() -> None:
    """Without the cluster's uid, its machines could not be distinguished from others."""
    config = load_config(EXAMPLE)

    assert isinstance(create_platform(config, settings=gcp_settings(config, "u-1")), GcpPlatform)
    with pytest.raises(InvalidValue, match="gcp"):
        create_platform(config)


def test_commands_without_a_cloud_do_not_import_googles_clients() -> None:
    """The clients take a second, and users run `iris submit` often."""
    modules = "import sys, iris.cli.main, iris.client.operate.platforms"
    code = f"{modules}; print([each for each in sys.modules if 'google.cloud' in each])"
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout

    assert said.strip() == "[]"


async def test_a_cancelled_create_call_ends_before_the_cancellation() -> None:
    """Otherwise the following delete finds nothing, and then the create takes effect."""
    calls, begun, go = Calls(PLAIN), threading.Event(), threading.Event()
    made: list[str] = []

    def create(to: Clients) -> None:
        begun.set()
        go.wait(60)
        made.append("slice")

    creating = asyncio.create_task(calls.make(Urgency.CREATE, create))
    await asyncio.to_thread(begun.wait, 60)
    creating.cancel()
    await asyncio.sleep(0)
    assert not creating.done()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await creating

    assert made == ["slice"]


async def test_errors_of_calls_are_converted_and_errors_in_our_code_are_not() -> None:
    """A bug must not be retried as if Google were unavailable."""
    calls = Calls(PLAIN)

    def refused(to: Clients) -> None:
        raise exceptions.ServiceUnavailable("away")

    def mistaken(to: Clients) -> None:
        raise KeyError("name")

    with pytest.raises(CallFailed, match="away"):
        await calls.make(Urgency.READ, refused)
    with pytest.raises(KeyError):
        await calls.make(Urgency.READ, mistaken)


def test_plain_endpoints_need_no_credentials() -> None:
    """The fake has none of Google's."""
    clients = connect(PLAIN)

    assert clients.tpu.transport.host == "127.0.0.1:1"


async def test_missing_credentials_are_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may exist a minute later, and then the clients are created."""
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere/key.json")
    calls = Calls(gcp())

    for _ in range(2):
        with pytest.raises(CallFailed, match="/nowhere/key"):
            await calls.make(Urgency.READ, lambda to: to.tpu.transport.kind)


# -- what is not to be seen
# --------------------------------------------------------------------------------------------------

KINDS = sorted(GROUPS)


class Clock:
    """A clock that is put forward."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def site(google: FakeGoogle) -> Iterator[Site]:
    site = Site(google)
    google.boot_time(0.2)
    google.delete_time(0.1)
    google.page_size(500)
    yield site
    google.clear()
    google.check(site.project)


@pytest.mark.parametrize("forgotten", [False, True])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_slice_deleted_before_it_is_visible_is_not_gone(
    site: Site, kind: str, forgotten: bool
) -> None:
    """Otherwise it would appear after its delete, and stay."""
    site.google.boot_time(None)
    site.google.slow_to_show(0.5)
    platform, request = site.platform(), site.wanted(GROUPS[kind])
    assert (await platform.create_slice(request)).state is MachineState.CREATING
    # Whose operation ends before there is anything to be waited for.
    if forgotten and kind != "queued":
        platform = site.platform()
    found = await platform.describe_slice(request.slice_id, ZONE)

    assert found is not None
    assert found.state is MachineState.CREATING
    assert await platform.delete_slice(request.slice_id, ZONE) is DeleteResult.GOING
    await goes(platform, request.slice_id)
    assert site.alive() == []


@pytest.mark.parametrize("kind", KINDS)
async def test_a_create_without_an_answer_may_still_appear(site: Site, kind: str) -> None:
    """The connection broke after the create took effect, and the slice appears a little later."""
    site.google.boot_time(None)
    site.google.slow_to_show(0.5)
    site.google.commit_then_drop(CREATES[kind])
    platform, request = site.platform(), site.wanted(GROUPS[kind])
    with pytest.raises(Unavailable):
        await platform.create_slice(request)

    await goes(platform, request.slice_id)
    assert site.alive() == []


async def test_a_delete_waits_for_a_cancelled_create(site: Site) -> None:
    """The name of the operation is unknown, and the operation is not listed."""
    site.google.operation("lost")
    begun, settings, request = threading.Event(), site.settings(), site.wanted()

    def connecting(to: GcpSettings) -> Clients:
        begun.set()
        return connect(to)

    platform = GcpPlatform(settings, lambda request: "#!/bin/sh", Calls(settings, connecting))
    site.google.slow_to_show(0.5)
    creating = asyncio.create_task(platform.create_slice(request))
    await asyncio.to_thread(begun.wait, 60)
    creating.cancel()
    await asyncio.wait([creating])

    await goes(platform, request.slice_id)
    assert (len(site.created()), site.alive()) == (1, [])


@pytest.mark.parametrize("kind", KINDS)
async def test_a_create_without_an_answer_is_gone_after_its_timeout(site: Site, kind: str) -> None:
    """Most unanswered calls had no effect."""
    clock = Clock()
    platform, request = site.platform(clock), site.wanted(GROUPS[kind])
    site.google.fail(CREATES[kind], 503)
    with pytest.raises(Unavailable):
        await platform.create_slice(request)

    clock.now += INVISIBLE_TIMEOUT_S - 1
    assert await platform.delete_slice(request.slice_id, ZONE) is DeleteResult.GOING
    clock.now += 2
    assert await platform.delete_slice(request.slice_id, ZONE) is DeleteResult.GONE


async def test_an_operation_that_never_ends_has_a_timeout(site: Site) -> None:
    """Its slice is never visible, and its deletion would never end."""
    clock = Clock()
    platform, request = site.platform(clock), site.wanted()
    site.google.operation("stuck")
    await platform.create_slice(request)
    site.google.slow_to_show(1e6)
    other = site.wanted(suffix="-b")
    site.google.operation("stuck")
    await platform.create_slice(other)

    clock.now += CREATE_TIMEOUT_S - 1
    assert await platform.delete_slice(other.slice_id, ZONE) is DeleteResult.GOING
    clock.now += 2
    assert await platform.delete_slice(other.slice_id, ZONE) is DeleteResult.GONE
    # It was there once.
    assert await platform.delete_slice(request.slice_id, ZONE) is DeleteResult.GONE


async def test_a_refused_slice_is_gone_after_one_read(site: Site) -> None:
    """Nothing was created; hundreds are refused while a zone is full."""
    site.google.quota("v5litepod", "spot", "europe-west4", 0, project=site.project)
    platform, request = site.platform(), site.wanted()
    with pytest.raises(QuotaExceeded):
        await platform.create_slice(request)

    assert await platform.delete_slice(request.slice_id, ZONE) is DeleteResult.GONE
    assert len(site.google.calls(match=site.project)) == 2


async def test_a_failed_create_is_reported_although_its_node_is_creating(site: Site) -> None:
    """The slice would otherwise wait for its whole boot timeout."""
    site.google.boot_time(None)
    site.google.operation("lingers")
    platform, request = site.platform(), site.wanted()
    await platform.create_slice(request)
    await fails(platform, request.slice_id, SliceFault.STOCK_OUT)
    await goes(platform, request.slice_id)
    assert site.alive() == []


# -- what becomes of creates
# --------------------------------------------------------------------------------------------------


async def test_a_failed_delete_is_not_read_as_a_failed_create(site: Site) -> None:
    """Its operation is on the same node, and may be the only one with an error."""
    platform, request = site.platform(), site.wanted()
    await platform.create_slice(request)
    await comes_up(platform, request.slice_id)
    site.google.operation("error", verb="delete", code=13)
    await platform.delete_slice(request.slice_id, ZONE)
    site.google.node(request.slice_id, vanish=True)

    assert await site.platform().describe_slice(request.slice_id, ZONE) is None


@pytest.mark.parametrize("kind", ["node", "instance"])
async def test_of_several_creates_of_a_name_the_last_counts(site: Site, kind: str) -> None:
    """The first failed, was repeated, and succeeded."""
    platform, request = site.platform(), site.wanted(GROUPS[kind])
    site.google.operation(
        "error", code=8 if kind == "node" else 503, message="" if kind == "node" else "STOCKOUT"
    )
    await platform.create_slice(request)
    await fails(platform, request.slice_id, SliceFault.STOCK_OUT)
    await goes(platform, request.slice_id)
    await platform.create_slice(request)
    await comes_up(platform, request.slice_id)
    site.google.node(request.slice_id, vanish=True)

    assert await site.platform().describe_slice(request.slice_id, ZONE) is None


@pytest.mark.parametrize("kind", ["node", "instance"])
async def test_the_error_of_a_create_is_found_on_later_pages(site: Site, kind: str) -> None:
    """A zone has many operations, and some pages are empty."""
    platform, request = site.platform(), site.wanted(GROUPS[kind])
    for number in range(3):
        await platform.create_slice(site.wanted(GROUPS[kind], f"-{number}"))
    site.google.operation(
        "error", code=8 if kind == "node" else 503, message="" if kind == "node" else "STOCKOUT"
    )
    await platform.create_slice(request)
    site.google.page_size(2, empty_pages=1)

    async def failed() -> bool:
        found = await site.platform().describe_slice(request.slice_id, ZONE)
        return found is not None and found.fault is SliceFault.STOCK_OUT

    await until(failed)


# -- time
# --------------------------------------------------------------------------------------------------


def test_a_platform_call_ends_before_its_activity_times_out() -> None:
    """A timed-out activity continues to run beside the next one. A create in flight ends first."""
    assert policies.PLATFORM_CALL.total_seconds() > gcp_platform.CALL_TIMEOUT_S + clients.DEADLINE


async def test_a_platform_call_has_one_deadline_for_all_its_api_calls(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them may be slow."""
    monkeypatch.setattr(gcp_platform, "CALL_TIMEOUT_S", 0.5)
    monkeypatch.setattr(tpu, "DEADLINE", 2.0)
    site.google.latency("GetQueuedResource", 1.0)
    platform = site.platform()
    with pytest.raises(Unavailable, match=r"within 0\.5 s"):
        await platform.describe_slice(site.name, ZONE)


async def test_the_kind_of_a_found_slice_is_remembered(site: Site) -> None:
    """A new control plane searches for all kinds once, not with each read."""
    request = site.wanted()
    await site.platform().create_slice(request)
    platform = site.platform()
    await platform.describe_slice(request.slice_id, ZONE)
    before = len(site.google.calls(match=request.slice_id))
    await platform.describe_slice(request.slice_id, ZONE)

    assert len(site.google.calls(match=request.slice_id)) == before + 1


# -- what is refused
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["node", "queued"])
async def test_a_zone_without_permission_is_not_empty(site: Site, kind: str) -> None:
    """The API returns the same error for zones without the service. A TPU costs money until it is
    visible again.
    """
    request = site.wanted(GROUPS[kind])
    await site.platform().create_slice(request)
    words = f"Location {ZONE} is not found or access is unauthorized."
    for method in ("GetNode", "GetQueuedResource", "ListOperations"):
        site.google.fail(method, "PERMISSION_DENIED", times=None, message=words)
    platform = site.platform(tpu_zones=(ZONE,))

    for call in (platform.describe_slice, platform.delete_slice):
        with pytest.raises(Unavailable, match="access is unauthorized"):
            await call(request.slice_id, ZONE)


def test_tpu_zones_are_the_zones_of_tpu_groups() -> None:
    """All other zones have no TPUs of the cluster."""
    config = load_config(EXAMPLE)
    named = {
        zone
        for group in config.scale_groups.values()
        if group.accelerator_variant
        for zone in group.zones
    }

    assert set(gcp_settings(config, "u-1").tpu_zones) == named


DISABLED = (
    "Cloud TPU API has not been used in project {} before or it is disabled. Enable it by visiting"
    " https://example.org"
)


def switched_off(site: Site, project: str) -> None:
    """The TPU API refuses every call, for the sake of this project."""
    words = DISABLED.format(project)
    for method in ("Get*", "List*"):
        site.google.fail(
            method, "PERMISSION_DENIED", times=None, details="SERVICE_DISABLED", message=words
        )


async def test_a_disabled_service_has_no_resources_of_the_project(site: Site) -> None:
    """A cluster of virtual machines needs no TPU API. The error may contain the project's
    number.
    """
    request = site.wanted(GROUPS["instance"])
    await site.platform().create_slice(request)
    for project, zones in ((site.project, (ZONE,)), ("84271728655", ())):
        switched_off(site, project)
        platform = site.platform(tpu_zones=zones)
        listing = await platform.list_slices()

        assert [each.slice_id for each in listing.slices] == [request.slice_id]
        assert listing.unreachable == {}
        assert (
            await site.platform(tpu_zones=zones).delete_slice(f"{site.name}-b", ZONE)
            is DeleteResult.GONE
        )
        site.google.clear()
    await goes(site.platform(), request.slice_id)


async def test_a_service_disabled_in_another_project_means_nothing(site: Site) -> None:
    """People's credentials belong to projects too, and the error is about that project."""
    request = site.wanted()
    await site.platform().create_slice(request)
    switched_off(site, "84271728655")
    platform = site.platform(tpu_zones=(ZONE,))

    assert set((await platform.list_slices()).unreachable) == {ANYWHERE}
    with pytest.raises(Unavailable, match="84271728655"):
        await platform.delete_slice(request.slice_id, ZONE)
