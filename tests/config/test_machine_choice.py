"""Which machines `iris host add | remove` are about, and which of them fit."""

import pytest

from iris.config import load_config
from iris.config.host_list import Login
from iris.config.machine_choice import (
    addresses_in,
    group_to_join,
    lacks,
    machines_to_add,
    machines_to_remove,
    misfit,
)
from iris.config.new_cluster import MachineReport
from iris.model.errors import InvalidValue, NotFound, Rejected
from iris.model.host.resources import parse_device
from iris.model.units import GIB

HEAD = (
    'platform: {manual: {}}\ncontroller: {local: {}, bundle_prefix: "file:///s"}\nscale_groups:\n'
)
DESKS = "  desks: {type: manual_vm, hosts: [desk1, desk2], resources: {cpu: 8, memory: 32g}}\n"
GPUS = "  gpus: {type: manual_vm, hosts: [gpu1], accelerator_variant: H100x8}\n"
BOTH = load_config(HEAD + DESKS + GPUS)


def report(device: str = "cpu", cores: int = 8, memory: int = 32 * GIB) -> MachineReport:
    return MachineReport(
        login=Login(address="new", user="me"),
        cores=cores,
        memory_bytes=memory,
        disk_bytes=GIB,
        device=parse_device(device),
    )


def test_the_group_is_the_only_one_or_has_to_be_named() -> None:
    """A guess by the machine's hardware would change when a group is added."""
    assert group_to_join(load_config(HEAD + DESKS), None) == "desks"
    assert group_to_join(BOTH, "gpus") == "gpus"
    with pytest.raises(
        InvalidValue,
        match=r"name one of the scale groups: desks \(no accelerator\), gpus \(gpu:H100:8\)",
    ):
        group_to_join(BOTH, None)
    with pytest.raises(
        InvalidValue, match="'gpu' is not a scale group of machines over SSH; use one of: desks"
    ):
        group_to_join(BOTH, "gpu")
    with pytest.raises(Rejected, match="has no scale group of machines over SSH"):
        group_to_join(load_config("platform: {local: {}}"), None)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("desk1", "'desk1' is a machine of scale group desks; remove it there first"),
        ("me@gpu2", "'me@gpu2' has a login; write the address only"),
        ("gpu2:2222", "has a login"),
        ("gpu[2-", "is not a machine"),
    ],
)
def test_a_machine_that_cannot_join_is_refused(text: str, problem: str) -> None:
    """Two groups never have one machine, and a login is a property of the group."""
    with pytest.raises(InvalidValue, match=problem.replace("[", r"\[")):
        machines_to_add(BOTH, "gpus", [text])


def test_ranges_and_machines_that_are_there_may_be_added() -> None:
    """The command may be repeated."""
    assert machines_to_add(BOTH, "gpus", ["gpu[1-3]"]) == ("gpu1", "gpu2", "gpu3")


def test_machines_are_removed_from_the_groups_that_have_them() -> None:
    """Any group may be emptied, but not the cluster."""
    assert machines_to_remove(BOTH, None, ["gpu1", "desk2"]) == {
        "gpus": ["gpu1"],
        "desks": ["desk2"],
    }
    with pytest.raises(NotFound, match=r"no machine desk3; did you mean desk"):
        machines_to_remove(BOTH, BOTH, ["desk3"])
    with pytest.raises(NotFound, match="its machines over SSH are: desk1, desk2, gpu1"):
        machines_to_remove(BOTH, None, ["10.0.0.1"])
    with pytest.raises(
        Rejected, match="no machine would remain; to end the cluster, run: iris cluster stop iris"
    ):
        machines_to_remove(BOTH, None, ["gpu1", "desk1", "desk2"])


def test_a_removal_that_was_killed_at_its_last_step_is_finished() -> None:
    """The file no longer lists a machine that the running cluster still uses. If the machine may
    have a slice, the file must list it.
    """
    without = load_config(HEAD + DESKS)
    retiring = load_config(
        HEAD + DESKS + GPUS.replace("accelerator", "retiring_hosts: [gpu1], accelerator")
    )
    assert machines_to_remove(without, retiring, ["gpu1"]) == {}
    with pytest.raises(
        Rejected,
        match=(
            "does not list gpu1, but the running cluster uses it; add it to hosts of scale group"
            " gpus"
        ),
    ):
        machines_to_remove(without, BOTH, ["gpu1"])


def test_a_machine_with_other_accelerators_does_not_fit() -> None:
    """Jobs would be sent there for devices that it does not have. Fewer cores only mean fewer
    tasks.
    """
    desks, gpus = BOTH.scale_groups["desks"], BOTH.scale_groups["gpus"]
    assert misfit(report(), desks) == misfit(report("gpu:H100:8"), gpus) == ""
    assert (
        misfit(report("gpu:H100:8"), desks) == "has gpu:H100:8, and the scale group no accelerator"
    )
    assert misfit(report(), gpus) == "has no accelerator, and the scale group gpu:H100:8"
    assert misfit(report("gpu:H100:4"), gpus) == "has gpu:H100:4, and the scale group gpu:H100:8"
    assert lacks(report(), desks) == []
    assert lacks(report(cores=4, memory=16 * GIB), desks) == [
        "has 4 cores, less than the 8 of its scale group",
        "has 16 GiB of memory, less than the 32 GiB of its scale group",
    ]


def test_ranges_are_addresses_and_logins_are_refused() -> None:
    """Machines leave by the names by which they have joined."""
    assert addresses_in(["gpu[5-7]", "gpu6", "10.0.0.3"]) == ("gpu5", "gpu6", "gpu7", "10.0.0.3")
    with pytest.raises(InvalidValue, match="MACHINE: 'ada@gpu5' has a login"):
        addresses_in(["ada@gpu5"])
