"""A program that reads histories and command lines tries to report its own host in the place of a
slice's.
"""

from datetime import UTC, datetime

import pytest
from google.protobuf.json_format import MessageToDict

from iris.messages.slice import HostReady, SliceInput
from iris.model.slice.events import HostReported, WorkflowStarted
from iris.model.slice.keys import is_signed, public_key, sign
from iris.model.slice.lifecycle import step
from iris.model.slice.status import SliceState
from tests.builders import a_host
from tests.e2e.cluster import a_cluster, eventually
from tests.fleet_harness import FleetCluster
from tests.fleet_played import TenantNotifier
from tests.harness import time_skipping_cluster
from tests.scaling_world import a_group
from tests.searches import command_lines, files_of, files_with

KEY = "5eed" * 16
NOW = datetime(2026, 1, 1, tzinfo=UTC)


async def everything_in_the_history(fleet: FleetCluster, workflow_id: str) -> set[str]:
    """Returns every text in the payloads of a workflow, as the Web UI shows them."""
    found: set[str] = set()

    def walk(value: object) -> None:
        match value:
            case dict():
                for each in value.values():
                    walk(each)
            case list():
                for each in value:
                    walk(each)
            case str():
                found.add(value)

    converter = fleet.client.data_converter
    async for event in fleet.client.get_workflow_handle(workflow_id).fetch_history_events():
        for _, attributes in event.ListFields():
            for payloads in _payloads(attributes):
                for value in await converter.decode(payloads):
                    walk(value)
        walk(MessageToDict(event))
    return found


def _payloads(message: object) -> list[list[object]]:
    """Returns the inputs and results below an event's attributes."""
    return [
        list(value.payloads)
        for _, value in (message.ListFields() if hasattr(message, "ListFields") else ())
        if type(value).__name__ == "Payloads"
    ]


@pytest.mark.long
async def test_nothing_in_a_history_lets_another_machine_take_the_place_of_a_host() -> None:
    """Everybody who sees the Web UI sees the inputs and signals of slices, and could give a host
    another address.
    """
    async with time_skipping_cluster(FleetCluster, TenantNotifier) as fleet:
        await fleet.scale(a_group(hosts=2, min_slices=1))
        await fleet.comes_true(lambda: fleet.platform.created)
        (slice_id,) = fleet.platform.created
        ready = await fleet.becomes(slice_id, SliceState.READY)
        read = await everything_in_the_history(fleet, fleet.slice_of(slice_id).id)
        read |= await everything_in_the_history(fleet, fleet.autoscaler.id)
        assert any(len(text) == 32 for text in read), "the request's token is there"

        (host, other) = ready.hosts
        mine = host.model_copy(update={"incarnation": "mine", "address": "10.6.6.6"})
        for text in read:
            await fleet.slice(host).signal("host_ready", HostReady(host=mine, signature=text))
            await fleet.slice(host).signal(
                "host_ready",
                HostReady(
                    host=mine.model_copy(update={"incarnation": host.incarnation}), signature=text
                ),
            )
        after = await fleet.shown(slice_id)

        assert after.refused == (host.id,), "the attempts have arrived"
        assert {(each.id, each.incarnation, each.address) for each in after.hosts} == {
            (each.id, each.incarnation, each.address) for each in (host, other)
        }


def test_a_signature_is_of_one_incarnation_of_one_host_at_one_address() -> None:
    """A signature in a history must be of no use for anything that was not signed."""
    host = a_host("w0", slice_id="s1", incarnation="first").model_copy(
        update={"address": "10.0.0.1"}
    )
    signature = sign(KEY, host)
    public = public_key(KEY)

    assert is_signed(public, "s1", host, signature)
    assert not is_signed(public, "s2", host, signature)
    for change in ({"id": "w1"}, {"incarnation": "second"}, {"address": "10.6.6.6"}):
        assert not is_signed(public, "s1", host.model_copy(update=change), signature)
    for wrong in ("", "00", "not hexadecimal", signature[:-2], "00" * 64, sign("00" * 32, host)):
        assert not is_signed(public, "s1", host, wrong)
    assert not is_signed("", "s1", host, signature)


class Joined:
    """A slice of one host that joined by itself."""

    def __init__(self) -> None:
        self.slice = step(
            SliceInput(cluster="c", id="s1").record(NOW), WorkflowStarted(), NOW
        ).slice

    def report(self, incarnation: str, key: str = "", claims: str = "") -> tuple[str, ...]:
        """Lets an agent report, and returns the incarnations that the slice has then.

        Args:
            claims: the private key of the public key that it sends; empty: its own.
        """
        host = a_host("w0", slice_id="s1", incarnation=incarnation)
        signature, public = (sign(key, host), public_key(claims or key)) if key else ("", "")
        self.slice = step(
            self.slice, HostReported(host, signature=signature, public_key=public), NOW
        ).slice
        return tuple(incarnation for _, incarnation in self.slice.incarnations)


def test_another_machine_does_not_take_the_id_of_a_host_that_joined() -> None:
    """By accident, with a copied command line, or on purpose: tasks would go to it. The machine
    itself may come back.
    """
    joined = Joined()
    assert joined.report("first", KEY) == ("first",)

    assert joined.report("theirs", "bad0" * 16) == ("first",)
    assert joined.report("theirs", "bad0" * 16, claims=KEY) == ("first",)
    assert joined.report("theirs") == ("first",)
    assert joined.slice.status.refused == ("w0",)
    joined.slice = SliceInput.of(joined.slice, ()).record(NOW)
    assert joined.report("theirs", "bad0" * 16) == ("first",)
    assert joined.report("second", KEY) == ("second",)
    assert joined.slice.status.refused == ()


def test_a_host_that_joined_with_an_older_agent_gets_its_key_with_the_upgrade() -> None:
    """Older agents have no key, and their slices keep running."""
    joined = Joined()
    assert joined.report("first") == ("first",)
    assert joined.report("first", KEY) == ("first",)

    assert joined.report("theirs") == ("first",)


@pytest.mark.long
def test_the_key_of_a_slice_is_in_its_file_and_nowhere_else() -> None:
    """Neither in the command line of an agent nor in the server's database, where it would stay for
    years.
    """
    with a_cluster("--cpu", "4", "--memory", "8g") as cluster:
        eventually(cluster.hosts)
        (slice_id,) = cluster.machines()
        file = cluster.home / "clusters" / cluster.name / "machines" / slice_id / "slice.key"
        key = file.read_text()

        assert file.stat().st_mode & 0o077 == 0
        assert [line for line in command_lines() if key in line] == []
        assert files_with(files_of(cluster.home), key.encode()) == {file}
        assert any(str(file) in line for line in command_lines()), "its agent reads the file"
