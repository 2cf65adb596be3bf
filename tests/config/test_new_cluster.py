"""The first configuration of a cluster of existing machines: whatever the machines have, it can be
used without a change.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris.config import InvalidConfig, load_config, served_kind
from iris.config.host_list import Login
from iris.config.new_cluster import MachineReport, NewCluster, group_machines, render_config
from iris.model.host.resources import Device, DeviceKind
from iris.model.units import GIB, MIB
from tests.strategies import CHEAP

LAB = NewCluster(name="lab", store="file:///srv/iris")
GPUS = st.builds(
    Device,
    kind=st.just(DeviceKind.GPU),
    variant=st.sampled_from(["H100", "A10", "A100-1g.10gb", "RTX3090"]),
    count=st.integers(1, 8),
)
TPUS = st.sampled_from(["v5litepod-1", "v5litepod-4"]).map(
    lambda name: Device(kind=DeviceKind.TPU, variant=name, count=int(name[-1]))
)
MACHINES = st.lists(
    st.builds(
        MachineReport,
        login=st.builds(
            Login,
            address=st.integers(1, 10**6).map("m{}".format) | st.ip_addresses(v=4).map(str),
            user=st.sampled_from(["ada", "bob", "yes", "1000"]),
            port=st.sampled_from([22, 2222]),
        ),
        cores=st.sampled_from([4, 32]),
        memory_bytes=st.integers(MIB, 2048 * GIB),
        disk_bytes=st.integers(MIB, 2048 * GIB),
        device=st.none() | GPUS | TPUS,
    ),
    min_size=1,
    max_size=12,
    unique_by=lambda machine: machine.login.address,
)


@given(MACHINES, st.text(max_size=40), st.sampled_from(["", "~/.ssh/it's: #1", "/keys/lab"]))
@CHEAP
def test_the_file_is_accepted_and_says_what_the_machines_have(
    machines: list[MachineReport], reason: str, key: str
) -> None:
    """Each machine is in one group, with its own login and accelerators, and no group promises more
    than a machine has.
    """
    new = LAB.model_copy(update={"key_file": key})
    config = load_config(render_config(new, machines, {"gone": reason}))

    assert served_kind(config) == "local"
    listed = {host: group for group in config.scale_groups.values() for host in group.hosts}
    assert sorted(host for group in config.scale_groups.values() for host in group.hosts) == sorted(
        machine.login.address for machine in machines
    )
    for machine in machines:
        group = listed[machine.login.address]
        assert (group.ssh_user, group.ssh_port, group.ssh_key_file) == (
            machine.login.user,
            machine.login.port,
            key,
        )
        assert group.resources.cpu == machine.cores
        assert group.resources.memory <= machine.memory_bytes
        assert group.resources.disk <= machine.disk_bytes
        assert group.resources.device == (str(machine.device) if machine.device else "cpu")
        assert (group.min_slices, group.max_slices) == (len(group.hosts), len(group.hosts))


def machine(address: str, memory: int, gpus: str = "") -> MachineReport:
    device = Device(kind=DeviceKind.GPU, variant=gpus, count=8) if gpus else None
    login = Login(address=address, user="ada")
    return MachineReport(
        login=login, cores=64, memory_bytes=memory * GIB, disk_bytes=GIB, device=device
    )


def test_equal_machines_are_a_group_although_their_memory_differs_a_little() -> None:
    """Two machines of one order report different amounts; one with half of the memory is another
    kind.
    """
    groups = group_machines(
        [
            machine("gpu1", 1000, "H100"),
            machine("cpu1", 256),
            machine("cpu2", 251),
            machine("cpu3", 128),
        ]
    )

    named = {group.name: [each.login.address for each in group.machines] for group in groups}
    assert named == {
        "cpu-64-cores-1": ["cpu1", "cpu2"],
        "cpu-64-cores-2": ["cpu3"],
        "h100x8": ["gpu1"],
    }


def test_a_file_without_a_store_is_refused_with_the_remedy() -> None:
    """Only the user knows which place all machines reach."""
    with pytest.raises(InvalidConfig) as refused:
        load_config(render_config(NewCluster(name="lab"), [machine("m1", 8)], {}))
    (problem,) = refused.value.problems
    assert problem.startswith(
        "controller.bundle_prefix: '' is required by platform.manual; set a place that every host"
        " reaches"
    )
