"""What the output of nvidia-smi says about the GPUs of a machine. The outputs are those of the real
program.
"""

import pytest

from iris.model.errors import InvalidValue
from iris.model.host.accelerators import parse_gpu
from iris.model.host.gpus import device_of, gpu_variant, offered, parse_gpus, read
from iris.model.host.resources import Device, DeviceKind, parse_device

#: Two GPUs, the second in MIG mode with two instances.
QUERIED = """\
0, GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77, NVIDIA A100-SXM4-40GB, 40960, 00000000:36:00.0, Disabled
1, GPU-e91edf3b-b297-37c1-a2a7-7601c3238fa2, NVIDIA A100-SXM4-40GB, 40960, 00000000:3B:00.0, Enabled
"""
LISTED = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-e91edf3b-b297-37c1-a2a7-7601c3238fa2)
  MIG 3g.20gb     Device  0: (UUID: MIG-c7384736-a75d-5afc-978f-d2f1294409fd)
  MIG 1g.5gb      Device  1: (UUID: MIG-a28ad590-3fda-56dd-84fc-0a0b96edc58d)
"""
#: The output before driver 470.
LISTED_BEFORE = """\
GPU 0: A100-SXM4-40GB (UUID: GPU-e91edf3b-b297-37c1-a2a7-7601c3238fa2)
  MIG 3g.20gb Device 0: (UUID: MIG-GPU-e91edf3b-b297-37c1-a2a7-7601c3238fa2/1/0)
"""
H100 = "NVIDIA H100 80GB HBM3, 81559, 00000000:{bus}:00.0, Disabled"
EIGHT = "".join(f"{index}, GPU-{index}, {H100.format(bus=f'{index}B')}\n" for index in range(8))


@pytest.mark.parametrize(
    ("name", "variant"),
    [
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H100 PCIe", "H100"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA A100-SXM4-40GB", "A100"),
        ("NVIDIA A10G", "A10G"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L40S", "L40S"),
        ("Tesla T4", "T4"),
        ("Tesla V100-SXM2-16GB", "V100"),
        ("NVIDIA GeForce RTX 4090", "RTX4090"),
        ("NVIDIA B200", "B200"),
        ("NVIDIA GB200", "GB200"),
        # The table does not have these; users must request them by these names.
        ("NVIDIA A10", "A10"),
        ("NVIDIA GeForce RTX 3090", "RTX3090"),
        ("NVIDIA GH200 480GB", "GH200"),
    ],
)
def test_a_gpu_has_the_name_that_users_ask_for(name: str, variant: str) -> None:
    """The driver's names say more than anybody wants to write."""
    assert gpu_variant(name) == variant


def test_the_gpus_of_a_host_are_counted() -> None:
    """A host offers devices of one kind: the most frequent one."""
    mixed = "0, GPU-a, Tesla T4, 15360\n1, GPU-b, NVIDIA L4, 23034\n2, GPU-c, Tesla T4, 15360\n"

    assert device_of(parse_gpus(EIGHT)) == Device(kind=DeviceKind.GPU, variant="H100", count=8)
    assert device_of(parse_gpus("No devices were found\n")) is None
    assert device_of(parse_gpus(mixed)) == Device(kind=DeviceKind.GPU, variant="T4", count=2)


def test_a_task_gets_only_gpus_of_the_kind_that_its_host_offers() -> None:
    """The numbers 0 and 1 of this machine are a T4 and an L4: a task that wants two T4s needs 0 and
    2.
    """
    mixed = parse_gpus(
        "0, GPU-a, Tesla T4, 15360\n1, GPU-b, NVIDIA L4, 23034\n2, GPU-c, Tesla T4, 15360\n"
    )

    assert [gpu.index for gpu in offered(mixed, parse_device("gpu:T4:2"))] == [0, 2]
    assert [gpu.index for gpu in offered(mixed, parse_device("gpu:l4:1"))] == [1]
    assert offered(mixed, parse_device("gpu:H100:8")) == ()
    assert len(offered(mixed, parse_device("gpu:our-own-name:3"))) == 3


def test_a_mig_instance_is_a_device_and_the_gpu_that_it_divides_is_not() -> None:
    """CUDA finds no device on a GPU in MIG mode itself."""
    whole, large, small = parse_gpus(QUERIED, LISTED)

    assert (whole.variant, large.variant, small.variant) == ("A100", "A100-3g.20gb", "A100-1g.5gb")
    assert (large.uuid, large.index) == ("MIG-c7384736-a75d-5afc-978f-d2f1294409fd", 1)
    assert (large.memory_bytes, small.memory_bytes) == (20 * 1024**3, 5 * 1024**3)
    two = parse_gpus(QUERIED.splitlines()[1], LISTED.replace("3g.20gb", "1g.5gb"))
    assert device_of(two) == parse_device("gpu:A100-1g.5gb:2")


def test_a_gpu_in_mig_mode_without_instances_offers_nothing() -> None:
    """A task on it would find no device."""
    assert (
        parse_gpus("0, GPU-a, NVIDIA A100-SXM4-40GB, 40960, 00000000:36:00.0, Enabled\n", "") == ()
    )


def test_instances_of_older_drivers_keep_their_longer_names() -> None:
    """That driver knows an instance only by such a name."""
    (only,) = parse_gpus(
        "0, GPU-e91edf3b-b297-37c1-a2a7-7601c3238fa2, A100-SXM4-40GB, 40537, b, Enabled",
        LISTED_BEFORE,
    )

    assert only.uuid == "MIG-GPU-e91edf3b-b297-37c1-a2a7-7601c3238fa2/1/0"


@pytest.mark.parametrize(
    ("text", "device"),
    [
        ("A100-1g.10gb", "gpu:A100-1g.10gb:1"),
        ("a100-1G.10GBx2", "gpu:A100-1g.10gb:2"),
        ("H100-1g.12gb+me:3", "gpu:H100-1g.12gb+me:3"),
        ("A100-1c.3g.20gb", "gpu:A100-1c.3g.20gb:1"),
        ("A100-1g.5gb,A100-2g.10gbx1", "gpu:A100-1g.5gb,A100-2g.10gb:1"),
    ],
)
def test_a_mig_instance_is_requested_by_its_gpu_and_its_profile(text: str, device: str) -> None:
    """As NVIDIA names it, in any case."""
    assert parse_gpu(text) == parse_device(device)


@pytest.mark.parametrize("text", ["X100-1g.10gb", "A100-", "A100-1g", "A100-big", "A100-1g.10gbx0"])
def test_a_name_that_is_no_instance_is_refused(text: str) -> None:
    """A request that no host can ever serve would wait for ever."""
    with pytest.raises(InvalidValue):
        parse_gpu(text)


def test_a_request_for_any_gpu_gets_a_whole_one() -> None:
    """A program that does not name an instance expects the memory of a whole GPU."""
    instance, whole = parse_device("gpu:A100-1g.10gb:7"), parse_device("gpu:A100:8")

    assert parse_gpu("1").accepts(whole)
    assert not parse_gpu("1").accepts(instance)
    assert not parse_gpu("A100").accepts(instance)
    assert parse_gpu("A100-1g.10gb").accepts(instance)
    assert not parse_gpu("A100-1g.10gb").accepts(whole)


@pytest.mark.parametrize(
    ("exit_code", "said"),
    [
        (
            15,
            (
                "Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost.  Reboot"
                " the system to recover this GPU\n"
            ),
        ),
        (255, "Unable to determine the device handle for GPU0000:07:00.0: Unknown Error\n"),
        (
            0,
            EIGHT.replace(
                "7, GPU-7, NVIDIA H100 80GB HBM3, 81559",
                "7, [GPU is lost], [GPU is lost], [GPU is lost]",
            ),
        ),
        (0, EIGHT.replace("81559, 00000000:7B", "[GPU requires reset], 00000000:7B")),
        (15, EIGHT),
    ],
)
def test_a_lost_gpu_is_recognised(exit_code: int, said: str) -> None:
    """The program reports it in several ways, by release and by the moment of the loss."""
    reading = read(exit_code, said)

    assert reading.lost
    assert reading.problem.startswith("nvidia-smi reports")


def test_a_program_that_fails_proves_no_loss() -> None:
    """It also fails while the driver is being loaded or replaced."""
    said = (
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure"
        " that it is installed.\n\n"
    )

    assert read(9, said) == read(9, said, said)
    assert not read(9, said).lost
    assert read(9, said).problem.startswith(
        "nvidia-smi fails with exit code 9: NVIDIA-SMI has failed"
    )
    assert read(137, "").problem == "nvidia-smi fails with exit code 137"


def test_a_warning_does_not_hide_the_gpus() -> None:
    """A GPU whose description of itself is corrupted computes as before."""
    reading = read(14, EIGHT + "WARNING: infoROM is corrupted at gpu 0000:0B:00.0\n")

    assert (len(reading.gpus), reading.problem) == (8, "")
