"""What an agent says of its machine, and when it believes that its life is over."""

import ipaddress
import re
import socket
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowExecutionStatus

from iris.activities.host.runtimes.base import JobFault
from iris.model.errors import Rejected
from iris.model.host.hosts import Host
from iris.model.job.secrets import ALL_OF_THE_USERS
from iris.model.slice.status import SliceState, SliceStatus
from iris.storage.object_store import Store
from iris.worker_agents.host import incarnation as life_of_host
from iris.worker_agents.host.agent import _own, _secrets
from iris.worker_agents.host.agent_options import AgentOptions, TaskSettings
from iris.worker_agents.host.incarnation import KEY_FILE, machine_key
from iris.worker_agents.host.membership import Membership
from iris.worker_agents.host.probe import default_address, describe_host
from tests.builders import a_host, some


def knows(*hosts: Host) -> SliceStatus:
    """What a slice says that counts these hosts in."""
    return SliceStatus(id="pair", state=SliceState.READY, hosts=hosts)


ME = a_host("w0", slice_id="pair")
OTHER = a_host("w1", slice_id="pair")


def a_life(*, made: bool = False) -> Membership:
    """One life of host w0, on a machine that was brought, or made for the slice."""
    nowhere: Any = None
    return Membership(nowhere, "local", ME, "00" * 32 if made else None, 1)


@pytest.fixture
def life() -> Membership:
    """Of a machine that was brought."""
    return a_life()


def test_an_agent_lives_on_as_long_as_its_slice_counts_it_in(life: Membership) -> None:
    """Whatever becomes of the others."""
    assert [life.replaced(knows(*hosts)) for hosts in ([ME], [ME, OTHER], [ME])] == ["", "", ""]


def test_an_agent_whose_slice_has_begun_anew_without_it_begins_anew_too(life: Membership) -> None:
    """The slice would wait for it for ever: the scheduler takes an incarnation that was taken out
    for dead.
    """
    assert life.replaced(knows(ME, OTHER)) == ""
    assert life.replaced(knows(OTHER)) == "its slice was started again without this host"


def test_an_agent_whose_incarnation_the_scheduler_has_ended_begins_a_new_one(
    life: Membership,
) -> None:
    """At its first check already: the scheduler will never take this one again, and its slice waits
    for another.
    """
    assert (
        life.replaced(
            knows(ME, OTHER).model_copy(update={"ended": ((OTHER.id, OTHER.incarnation),)})
        )
        == ""
    )
    ended = knows(ME, OTHER).model_copy(update={"ended": ((ME.id, ME.incarnation),)})
    assert life.replaced(ended) == "the scheduler has ended this incarnation"
    assert a_life(made=True).replaced(ended) == "the scheduler has ended this incarnation"


def test_an_agent_that_has_just_reported_gives_its_slice_time_to_read_that(
    life: Membership,
) -> None:
    """The report may lie behind others, or its former life may still be known; by the second look
    it must be there.
    """
    assert life.replaced(knows(OTHER)) == ""
    assert life.replaced(knows(OTHER)) != ""


def test_an_agent_whose_place_another_has_taken_stops(life: Membership) -> None:
    """Two agents of one host would push each other out for ever."""
    assert life.replaced(knows(ME)) == ""
    with pytest.raises(
        Rejected, match=r"another agent has taken over host w0 \(incarnation second\)"
    ):
        life.replaced(knows(a_host("w0", slice_id="pair", incarnation="second"), OTHER))


def test_an_agent_whose_host_id_belongs_to_another_machine_stops_and_says_what_to_do(
    life: Membership,
) -> None:
    """It is a copy of a command line, or a machine that was set up again; the first look may be too
    early.
    """
    refused = knows(a_host("w0", slice_id="pair", incarnation="theirs")).model_copy(
        update={"refused": ("w0",)}
    )

    assert life.replaced(refused) == ""
    with pytest.raises(
        Rejected,
        match=r"host id w0 is in use by another machine, .*; give this one another --host-id",
    ):
        life.replaced(refused)


def test_a_machine_has_one_key_and_it_is_private(tmp_path: Path) -> None:
    """A restarted agent is the same machine; a file that is damaged is none."""
    key = machine_key(tmp_path)
    file = tmp_path / KEY_FILE

    assert machine_key(tmp_path) == key
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_text("damaged")
    assert machine_key(tmp_path) != key


@pytest.mark.parametrize(
    "how",
    [
        None,
        *(each for each in WorkflowExecutionStatus if each is not WorkflowExecutionStatus.RUNNING),
    ],
)
def test_a_machine_that_was_brought_begins_anew_however_its_slice_has_ended(
    life: Membership, how: WorkflowExecutionStatus | None
) -> None:
    """It belongs to whoever brought it, who wants it to work."""
    assert life.ended(how).startswith("its slice ")


@pytest.mark.parametrize(
    "how", [None, WorkflowExecutionStatus.COMPLETED, WorkflowExecutionStatus.CANCELED]
)
def test_a_machine_that_was_made_is_of_no_use_when_its_slice_has_ended(
    how: WorkflowExecutionStatus | None,
) -> None:
    """It is being deleted, and another one may be here already."""
    with pytest.raises(Rejected, match="slice pair, for which this machine was created, has ended"):
        a_life(made=True).ended(how)


def test_a_machine_whose_slice_somebody_terminated_waits_for_another_to_look_after_it() -> None:
    """What runs there runs on: the autoscaler finds the machine, and adopts it."""
    assert a_life(made=True).ended(WorkflowExecutionStatus.TERMINATED) == ""


def test_a_host_is_a_slice_by_itself_unless_it_is_told_of_one() -> None:
    """And it has an address."""
    alone, member = (
        describe_host("h1", some(), {}, incarnation="first", slice_id=slice_id, address="10.0.0.7")
        for slice_id in (None, "pair")
    )

    assert (alone.slice_id, member.slice_id, alone.address) == ("h1", "pair", "10.0.0.7")
    assert ipaddress.ip_address(describe_host("h1", some(), {}, incarnation="first").address)


def test_an_agent_that_is_started_again_goes_on_with_the_life_of_its_host(tmp_path: Path) -> None:
    """What runs there was placed on that life; one that was ended is followed by another."""
    begun = life_of_host.begin(tmp_path)

    assert life_of_host.of(tmp_path) == begun
    life_of_host.end(tmp_path)
    assert life_of_host.of(tmp_path) is None
    assert life_of_host.begin(tmp_path) != begun


def test_a_machine_that_was_restarted_has_begun_another_life(tmp_path: Path) -> None:
    """Nothing that ran before runs now."""
    life_of_host.begin(tmp_path)
    kept = tmp_path / life_of_host.FILE
    kept.write_text(re.sub('"boot":"[^"]*"', '"boot":"another"', kept.read_text()))

    assert life_of_host.of(tmp_path) is None


def test_a_machine_without_a_way_out_has_its_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """A laptop in a train is a cluster too."""

    class NoWay(socket.socket):
        def connect(self, address: object) -> None:
            raise OSError("Network is unreachable")

    monkeypatch.setattr(socket, "socket", NoWay)

    assert default_address() == "127.0.0.1"


async def test_no_job_gets_a_file_of_its_agent_as_a_secret(tmp_path: Path) -> None:
    """The key of the machine proves who it is. The cache and the directory of jobs hold files of
    other jobs.
    """
    places = {name: tmp_path / name for name in ("directory", "cache_dir", "jobs_dir")}
    places["key_file"] = tmp_path / "slice.key"
    files = [place if name == "key_file" else place / "file" for name, place in places.items()]
    for file in files:
        file.parent.mkdir(exist_ok=True)
        file.write_text("a value")
    (tmp_path / "other").write_text("a value")
    given: dict[str, Any] = {
        "address": "",
        "namespace": "",
        "cluster": "",
        "store": "",
        "host_id": "h",
        **places,
    }
    options = AgentOptions(tasks=TaskSettings(secrets=ALL_OF_THE_USERS), **given)
    secrets = _secrets(options, _own(options), Store(tmp_path.as_uri()))

    for file in files:
        with pytest.raises(JobFault, match="its source is a file of the agent"):
            await secrets.values({"A": f"host-file:{file}"}, "ada/train")
    assert (await secrets.values({"A": f"host-file:{tmp_path}/other"}, "ada/train"))[
        "A"
    ].get_secret_value() == "a value"
