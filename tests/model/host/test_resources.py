"""What is asked for and what is offered."""

import pytest
from hypothesis import given
from pydantic import ValidationError

from iris.model.errors import InvalidValue
from iris.model.host.resources import AMOUNTS, Device, DeviceKind, Resources, parse_device
from tests.builders import some
from tests.strategies import CHEAP, wants


@pytest.mark.parametrize(
    ("wanted", "offered", "accepted"),
    [
        ("gpu:H100", "gpu:H100:8", True),
        ("gpu:h100", "gpu:H100:8", True),
        ("gpu:H100", "gpu:A100:8", False),
        ("gpu:H100", "gpu:H100-80G:8", False),
        ("gpu", "gpu:A100:8", True),
        ("gpu:auto", "gpu:A100:8", True),
        ("gpu:A100,H100", "gpu:H100:8", True),
        ("gpu:A100,H100", "gpu:L4:8", False),
        ("tpu", "gpu:H100:8", False),
        ("tpu:v5litepod-16:4", "tpu:v5litepod-16:4", True),
        ("gpu:H100", "cpu", False),
    ],
)
def test_a_device_matches_by_kind_and_variant(wanted: str, offered: str, accepted: bool) -> None:
    """Kind is exact; a variant is exact, one of a set, or any: a program compiled for one chip must
    not meet another.
    """
    device = parse_device(wanted)

    assert device is not None
    assert device.accepts(parse_device(offered)) is accepted


def test_how_many_devices_are_wanted_does_not_decide_the_kind_of_host() -> None:
    """A host with too few of the right devices is too small, not of the wrong kind. Its reason
    differs.
    """
    assert Device(kind=DeviceKind.GPU, variant="H100", count=16).accepts(
        Device(kind=DeviceKind.GPU, variant="H100", count=8)
    )


@pytest.mark.parametrize(
    ("text", "device"),
    [
        ("cpu", None),
        ("gpu", Device(kind=DeviceKind.GPU, variant="auto", count=1)),
        ("GPU:H100:8", Device(kind=DeviceKind.GPU, variant="H100", count=8)),
        ("gpu::4", Device(kind=DeviceKind.GPU, variant="auto", count=4)),
        ("tpu:v5litepod-16:4", Device(kind=DeviceKind.TPU, variant="v5litepod-16", count=4)),
    ],
)
def test_a_device_is_read_as_kind_variant_count(text: str, device: Device | None) -> None:
    """The one notation of the command line, the agents' flags and the refusals."""
    assert device == parse_device(text)


@pytest.mark.parametrize(
    "text",
    ["", "fpga", "gpu:H100:0", "gpu:H100:-1", "gpu:H100:two", "gpu:H100:1:1", "cpu:8", "cpu::8"],
)
def test_what_is_no_device_is_refused_by_field_name(text: str) -> None:
    """ "cpu:8" in particular reads like eight cores and would silently be none."""
    with pytest.raises(InvalidValue, match=r"^device: "):
        parse_device(text)


@pytest.mark.parametrize("text", ["gpu:H100:8", "tpu:v5litepod-16:4", "gpu:A100,H100:1"])
def test_a_device_as_shown_can_be_typed_in_again(text: str) -> None:
    """A refusal quotes the device; people paste it into their next submission."""
    assert text == str(parse_device(text))


@pytest.mark.parametrize(
    ("resources", "shown"),
    [
        (some(cpu=4, memory=8), "4 cpu, 8 GiB memory"),
        (some(cpu=0.5, disk=100), "0.5 cpu, 100 GiB disk"),
        (some(cpu=8, memory=1.5, device="gpu:H100:8"), "8 cpu, 1.5 GiB memory, gpu:H100:8"),
        (some(cpu=0), "nothing"),
    ],
)
def test_resources_are_shown_without_what_nobody_asked_for(
    resources: Resources, shown: str
) -> None:
    """Lists and explanations show one short phrase per task."""
    assert shown == str(resources)


@CHEAP
@given(wants())
def test_the_numbers_have_one_order_everywhere(resources: Resources) -> None:
    """What is compared by place and what is shown by name must not be mixed up: cores are not
    bytes.
    """
    assert resources.amounts() == dict(zip(AMOUNTS, resources.vector, strict=True))
    assert resources.amounts()["device"] == resources.device_count
    assert resources.amounts()["cpu"] == resources.cpu_millis
    assert resources.amounts()["memory"] == resources.memory_bytes
    assert resources.amounts()["disk"] == resources.disk_bytes


@pytest.mark.parametrize("field", ["cpu_millis", "memory_bytes", "disk_bytes"])
def test_nobody_asks_for_less_than_nothing(field: str) -> None:
    """A negative request would make a host seem larger than it is."""
    with pytest.raises(ValidationError, match=field):
        Resources(**{field: -1})
