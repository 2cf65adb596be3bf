"""What Google's metadata server says of a machine, and that it is asked on Google's machines
only.
"""

import asyncio
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from iris.activities.host.machine.accelerators import TpuHost
from iris.worker_agents.host.metadata import (
    Metadata,
    of_this_machine,
    parse_endpoints,
    parse_tpu_env,
    probe_place,
    probe_tpu,
    watch_for_preemption,
)
from tests.fakes.metadata import FakeMetadata

#: As a v5e VM has them, shortened.
TPU_ENV = """ACCELERATOR_TYPE: 'v5litepod-16'
CHIPS_PER_HOST_BOUNDS: '2,2,1'
INJECT_SLICE_BUILDER_FAULT: ''
NODE_ID: 'train-1'
TOPOLOGY: '4x4'
WORKER_ID: '2'
"""
ENDPOINTS = ",".join(f"unknown:unknown:10.164.0.{number}" for number in (9, 3, 5, 4))
PATIENCE = 60.0
#: Watches for as long as it takes to ask twice, and ends.
WATCH = """
import asyncio, sys
from iris.worker_agents.host.metadata import Metadata
from iris.worker_agents.host.metadata import watch_for_preemption
try:
    asyncio.run(asyncio.wait_for(watch_for_preemption(Metadata(sys.argv[1]), print), 1))
except TimeoutError:
    pass
"""


@pytest.fixture
def google() -> Iterator[FakeMetadata]:
    with FakeMetadata().started() as fake:
        yield fake


async def test_a_tpu_vm_knows_its_slice_its_number_and_the_other_hosts(
    google: FakeMetadata,
) -> None:
    """In the order of their numbers, which is not that of their addresses."""
    google.set(
        attributes__accelerator_type="v5litepod-16",
        attributes__tpu_env=TPU_ENV,
        attributes__agent_worker_number="2",
        attributes__worker_network_endpoints=ENDPOINTS,
        attributes__instance_id="train-1",
        name="t1v-n-55c6e2f3-w-2",
    )

    assert await probe_tpu(Metadata(google.url)) == TpuHost(
        name="train-1",
        variant="v5litepod-16",
        worker_id=2,
        addresses=("10.164.0.9", "10.164.0.3", "10.164.0.5", "10.164.0.4"),
        hosts=4,
        chips=4,
        bounds="2,2,1",
        topology="4x4",
    )


async def test_a_tpu_vm_that_says_little_is_filled_in_from_the_table(google: FakeMetadata) -> None:
    """And its slice is called like the machine without its number."""
    google.set(attributes__accelerator_type="v6e-8", name="mine-w-0")

    assert await probe_tpu(Metadata(google.url)) == TpuHost(
        name="mine", variant="v6e-8", hosts=1, chips=8, bounds="2,4,1", topology="2x4"
    )


async def test_a_tpu_that_is_newer_than_the_table_is_taken_at_its_word(
    google: FakeMetadata,
) -> None:
    """Nobody should have to wait for a release of Iris."""
    env = TPU_ENV.replace("v5litepod-16", "v9-32").replace("2,2,1", "2,2,2")
    google.set(attributes__tpu_env=env, attributes__worker_network_endpoints=ENDPOINTS)
    found = await probe_tpu(Metadata(google.url))

    assert found is not None
    assert (found.variant, found.chips, found.hosts, found.worker_id) == ("v9-32", 8, 4, 2)


async def test_a_machine_without_tpu_attributes_is_no_host_of_a_slice(google: FakeMetadata) -> None:
    """A plain VM has a metadata server, too."""
    google.set(name="plain", zone="projects/7/zones/us-west4-a", scheduling__preemptible="TRUE")

    assert await probe_tpu(Metadata(google.url)) is None
    assert await probe_place(Metadata(google.url)) == {
        "zone": "us-west4-a",
        "region": "us-west4",
        "preemptible": True,
    }


async def test_metadata_that_makes_no_sense_does_not_keep_the_agent_from_starting(
    google: FakeMetadata,
) -> None:
    """What cannot be read is as if it were not there."""
    google.set(
        attributes__accelerator_type="v5litepod-16",
        attributes__tpu_env="CHIPS_PER_HOST_BOUNDS: 'two by two'",
        attributes__agent_worker_number="first",
        attributes__worker_network_endpoints="somewhere",
        name="t-w-0",
    )
    found = await probe_tpu(Metadata(google.url))

    assert found is not None
    assert (found.name, found.bounds, found.worker_id, found.addresses) == ("t", "2,2,1", 0, ())


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("a:8470:10.0.0.1", ("10.0.0.1",)),
        ("a:8470:10.0.0.1, b:8470:10.0.0.2", ("10.0.0.1", "10.0.0.2")),
        ("a:8470:fd00::1,b:8470:fd00::2", ("fd00::1", "fd00::2")),
        ("a:8470:10.0.0.1,b:8470:", ()),
        ("10.0.0.1", ()),
        ("", ()),
    ],
)
def test_half_a_list_of_hosts_is_none(text: str, addresses: tuple[str, ...]) -> None:
    """Shifted by one, every host but the first would be taken for another."""
    assert parse_endpoints(text) == addresses


def test_the_environment_of_a_tpu_is_read_line_by_line() -> None:
    """What is no setting is passed over; quotes may be missing."""
    assert parse_tpu_env("A: 'x, y'\nB: \"z\"\nC: 4\n\n# note\nD: ''\n") == {
        "A": "x, y",
        "B": "z",
        "C": "4",
        "D": "",
    }


async def test_a_server_that_is_away_slow_or_another_says_nothing_and_soon(
    google: FakeMetadata,
) -> None:
    """The agent must come up without it."""
    google.set(name="plain", attributes__accelerator_type="v6e-8")
    google.genuine = False
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for url in (
            "http://127.0.0.1:9",
            f"http://127.0.0.1:{silent.getsockname()[1]}",
            google.url,
        ):
            assert (
                await Metadata(url, patience=timedelta(milliseconds=50)).get("instance/name")
                is None
            )

    assert await probe_tpu(Metadata(google.url)) is None


def test_only_a_machine_of_googles_asks_for_a_metadata_server(tmp_path: Path) -> None:
    """Elsewhere the name might be somebody else's, and the way to it long."""
    product = tmp_path / "product_name"
    assert of_this_machine({}, product) is None
    product.write_text("ThinkPad X1\n")
    assert of_this_machine({}, product) is None
    product.write_text("Google Compute Engine\n")
    assert of_this_machine({}, product) is not None
    assert of_this_machine({"GCE_METADATA_HOST": "127.0.0.1:1234"}, tmp_path / "none") is not None


# -- the notice
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"preempted": "TRUE"}, "preempted"),
        ({"maintenance_event": "TERMINATE_ON_HOST_MAINTENANCE"}, "maintenance"),
    ],
)
async def test_a_notice_is_passed_on_as_soon_as_it_is_given(
    google: FakeMetadata, change: dict[str, str], says: str
) -> None:
    """Once, in words; what is left of the half minute is the program's."""
    google.set(preempted="FALSE", maintenance_event="NONE")
    notices: list[str] = []
    watching = asyncio.create_task(watch_for_preemption(Metadata(google.url), notices.append))
    await asyncio.to_thread(google.wait_for_question, "instance/preempted")
    await asyncio.to_thread(google.wait_for_question, "instance/maintenance-event")
    assert notices == []
    google.set(maintenance_event="MIGRATE_ON_HOST_MAINTENANCE")  # it only moves
    google.set(**change)
    await asyncio.wait_for(watching, PATIENCE)

    (notice,) = notices
    assert says in notice


async def test_a_notice_that_was_given_before_anybody_asked_is_heard(google: FakeMetadata) -> None:
    """An agent may be started in a machine's last minute."""
    google.set(preempted="TRUE")
    notices: list[str] = []
    await asyncio.wait_for(watch_for_preemption(Metadata(google.url), notices.append), PATIENCE)

    assert len(notices) == 1


async def test_a_server_that_stumbles_is_asked_again(google: FakeMetadata) -> None:
    """A TPU host that did not hear of its TPU would offer itself as a plain one."""
    google.set(name="mine-w-0")
    google.fails = 2

    assert await Metadata(google.url).get("instance/name") == "mine-w-0"


async def test_no_failure_of_the_server_ends_the_watch(google: FakeMetadata) -> None:
    """It may be away for a while, and not know one of the values at all."""
    google.fails = 5
    google.set(preempted="TRUE")
    notices: list[str] = []
    watch = watch_for_preemption(
        Metadata(google.url), notices.append, retry=timedelta(milliseconds=5)
    )
    await asyncio.wait_for(watch, PATIENCE)

    assert (google.fails, len(notices)) == (0, 1)


def test_a_watch_that_is_ended_keeps_nobody_waiting(google: FakeMetadata) -> None:
    """An agent that stops would otherwise stay for as long as the server holds the question."""
    google.set(preempted="FALSE", maintenance_event="NONE")
    subprocess.run([sys.executable, "-c", WATCH, google.url], check=True, timeout=60)

    assert any("wait_for_change" in asked for asked in google.asked)
