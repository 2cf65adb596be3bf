"""What a platform's word means for a slice, and what a group's hosts look like."""

import pytest

from iris.model import names
from iris.model.host.constraints import (
    REGION,
    SCALE_GROUP,
    TPU_NAME,
    TPU_TOPOLOGY,
    TPU_VM_COUNT,
    TPU_WORKER_ID,
    ZONE,
)
from iris.model.slice.provisioning import MachineState, SliceFault, SliceObservation, loss_of
from iris.model.slice.scale_groups import ScaleGroup, SliceType, region_of, unknown_group
from tests.builders import TPU_HOST, some


def seen(state: MachineState, reason: str = "") -> SliceObservation:
    return SliceObservation(slice_id="s", group="g", zone="z", state=state, reason=reason)


@pytest.mark.parametrize(
    "state", [MachineState.CREATING, MachineState.ACTIVE, MachineState.REPAIRING]
)
def test_machines_that_come_or_are_there_are_no_loss(state: MachineState) -> None:
    """Slow is not failed."""
    assert loss_of(seen(state)) is None


@pytest.mark.parametrize(
    ("state", "fault"),
    [
        (MachineState.PREEMPTED, SliceFault.PREEMPTED),
        (MachineState.FAILED, SliceFault.PLATFORM),
        (MachineState.DELETING, SliceFault.VANISHED),
    ],
)
def test_machines_that_are_gone_or_broken_are_a_loss_in_the_platforms_words(
    state: MachineState, fault: SliceFault
) -> None:
    """Its own words if it has any: people search for them."""
    assert loss_of(seen(state, "because of host maintenance")) == (
        fault,
        "because of host maintenance",
    )
    told = loss_of(seen(state))
    assert told is not None
    assert told[1]


def test_machines_that_the_platform_does_not_know_have_vanished() -> None:
    """Somebody deleted them behind Iris' back."""
    assert loss_of(None) == (SliceFault.VANISHED, "the platform no longer knows its machines")


def test_the_hosts_of_a_slice_are_what_a_job_for_its_kind_looks_for() -> None:
    """A gang finds them by their slice, in the order of their worker ids."""
    group = ScaleGroup(
        name="v5e_16",
        type=SliceType.TPU_VM,
        zones=("europe-west4-b",),
        hosts=2,
        resources=TPU_HOST,
        topology="4x4",
        attributes={"disk": "ssd", ZONE: "its own word"},
        max_slices=1,
    )
    first, second = group.slice_hosts("s", "europe-west4-b")

    assert [first.id, second.id] == ["s-w-0", "s-w-1"]
    assert [host.attributes[TPU_WORKER_ID] for host in (first, second)] == [0, 1]
    assert first.attributes[TPU_NAME] == first.slice_id == "s"
    assert (first.attributes[TPU_VM_COUNT], first.attributes[TPU_TOPOLOGY]) == (2, "4x4")
    assert (first.attributes[SCALE_GROUP], first.attributes[REGION]) == ("v5e_16", "europe-west4")
    assert (first.attributes["disk"], first.attributes[ZONE]) == ("ssd", "its own word")


def test_the_only_host_of_a_slice_has_its_name_and_no_tpu_attributes_without_a_tpu() -> None:
    """A VM is a slice of one."""
    group = ScaleGroup(
        name="cpu", type=SliceType.GCE_VM, zones=("z-a",), resources=some(cpu=4), max_slices=1
    )
    (host,) = group.slice_hosts("cpu-1", "z-a")

    assert host.id == "cpu-1"
    assert TPU_NAME not in host.attributes


def test_a_zone_without_a_letter_is_its_own_region() -> None:
    """Local and manual clusters name zones as they like."""
    assert [region_of(zone) for zone in ("europe-west4-b", "rack")] == ["europe-west4", "rack"]


def test_a_slice_of_a_group_that_is_gone_can_still_be_given_back() -> None:
    """Its machines cost money, whatever the configuration says by now."""
    group = unknown_group("", "z")
    assert (group.name, group.max_slices, group.zones) == ("unknown", 0, ("z",))


def test_a_slices_id_is_spelled_as_clouds_want_it() -> None:
    """Clouds accept lower case, digits and dashes. A cluster that shares no project needs no
    prefix.
    """
    assert names.slice_id("iris-EU", "tpu_v5e.16", "1a2b") == "iris-eu-tpu-v5e-16-1a2b"
    assert names.slice_id("", "cpu", "1a2b") == "cpu-1a2b"
