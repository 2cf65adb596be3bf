"""The accelerators that can be named, and how they are asked for."""

from math import prod

import pytest

from iris.model.errors import InvalidValue
from iris.model.host.accelerators import GPU_VARIANTS, TPUS, parse_gpu, parse_tpu, tpu
from iris.model.host.resources import Device, DeviceKind, parse_device
from iris.model.units import GIB


def gpu(variant: str, count: int) -> Device:
    return Device(kind=DeviceKind.GPU, variant=variant, count=count)


@pytest.mark.parametrize("variant", TPUS)
def test_a_tpu_adds_up(variant: str) -> None:
    """The table was typed by hand: name, topology, hosts and chips per host must tell one story.
    The autoscaler reckons with its machine and runtime before there is a host to ask.
    """
    kind = tpu(variant)
    family, _, size = variant.partition("-")
    lengths = [int(length) for length in kind.topology.split("x")]

    assert kind.variant == variant
    assert kind.chips == kind.hosts * kind.chips_per_host == prod(lengths)
    assert kind.chips * (2 if family in ("v4", "v5p") else 1) == int(size)
    assert len(lengths) == (3 if family in ("v4", "v5p") else 2)
    # Google's pages call eight chips of v5e and v6e one host; they are two VMs, and a gang of half
    # the size would hang.
    assert kind.chips_per_host in ((4,) if kind.hosts > 1 else (1, 4, 8))
    assert 24_000 <= kind.host_cpu_millis <= 240_000
    assert 40 * GIB <= kind.host_memory_bytes <= 1440 * GIB
    assert kind.runtime_version


@pytest.mark.parametrize(
    ("variant", "hosts", "chips_per_host"),
    [
        ("v4-8", 1, 4),
        ("v4-4096", 512, 4),
        ("v5litepod-1", 1, 1),
        ("v5litepod-8", 1, 8),
        ("v5litepod-16", 4, 4),
        ("v5litepod-256", 64, 4),
        ("v5p-8", 1, 4),
        ("v5p-12288", 1536, 4),
        ("v6e-4", 1, 4),
        ("v6e-8", 1, 8),
        ("v6e-256", 64, 4),
    ],
)
def test_a_tpu_has_the_hosts_that_the_api_reports(
    variant: str, hosts: int, chips_per_host: int
) -> None:
    """The ends of each family, and where one VM of eight gives way to VMs of four."""
    assert (hosts, chips_per_host) == (tpu(variant).hosts, tpu(variant).chips_per_host)


@pytest.mark.parametrize(
    ("text", "variant"),
    [("V6E-8", "v6e-8"), (" v4-8 ", "v4-8"), ("v5e-16", "v5litepod-16"), ("V5E-1", "v5litepod-1")],
)
def test_a_tpu_goes_by_its_names(text: str, variant: str) -> None:
    """The API says v5litepod, and most people say v5e. Upper and lower case are equal."""
    assert variant == tpu(text).variant


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("v6e-12", "did you mean v6e-8 or v6e-16?"),
        ("v5e-2", "did you mean v5litepod-1 or v5litepod-4?"),
        ("v4-4", "did you mean v4-8?"),
        ("v5p-99999", "did you mean v5p-12288?"),
        ("v6e-016", "v6e-16"),
        ("v5lite-16", "v5litepod-16"),
        ("v6e", "v6e-1"),
        ("H100", "v5litepod-1 to v5litepod-256"),
        ("", "v4-8 to v4-4096"),
        ("v6e-" + "9" * 5000, "v6e-256"),
    ],
)
def test_an_unknown_tpu_is_refused_with_the_nearest(text: str, remedy: str) -> None:
    """A size in a known family has neighbours; a slip of the pen has a correction; anything else
    gets the list.
    """
    with pytest.raises(InvalidValue) as error:
        tpu(text, field="tpu")

    assert remedy in str(error.value)
    assert str(error.value).startswith("tpu: ")


def test_a_tpu_request_is_what_each_host_must_have_and_how_many_there_are() -> None:
    """A job on v5litepod-16 is a gang of four tasks that want four chips each."""
    request = parse_tpu("v5e-16")

    assert request.device == Device(kind=DeviceKind.TPU, variant="v5litepod-16", count=4)
    assert request.hosts == 4


def test_every_tpu_meets_its_own_request() -> None:
    """The scheduler compares the request with what a host of the slice has."""
    for variant in TPUS:
        kind, request = tpu(variant), parse_tpu(variant)

        assert request.hosts == kind.hosts, variant
        assert request.device.accepts(
            Device(kind=DeviceKind.TPU, variant=variant, count=kind.chips_per_host)
        ), variant
        assert request.device == parse_device(str(request.device)), variant


def test_alternatives_of_one_shape_are_one_request() -> None:
    """The first of them to come free will do, so the gang must fit them all."""
    request = parse_tpu("v5e-16, v6e-16,V4-32,v5litepod-16")

    assert request.device == Device(
        kind=DeviceKind.TPU, variant="v5litepod-16,v6e-16,v4-32", count=4
    )
    assert request.hosts == 4


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "v6e-16,v6e-32",
            "v6e-16 has 4 hosts with 4 chips each, v6e-32 has 8 hosts with 4 chips each",
        ),
        ("v6e-4,v6e-8", "v6e-4 has 1 host with 4 chips each, v6e-8 has 1 host with 8 chips each"),
        (
            "v6e-16,v5e-16,v5e-1",
            "v6e-16 has 4 hosts with 4 chips each, v5litepod-1 has 1 host with 1 chip each",
        ),
    ],
)
def test_alternatives_of_different_shape_are_refused_with_their_numbers(
    text: str, problem: str
) -> None:
    """A gang has one size; which of them is wrong only the user knows."""
    with pytest.raises(InvalidValue, match=problem):
        parse_tpu(text)


@pytest.mark.parametrize(
    "text", ["", ",", "v6e-16,", "v6e-16,v6e-12", "v6e-16 v5e-16", "auto", "tpu:v6e-16:4"]
)
def test_one_unknown_alternative_is_one_too_many(text: str) -> None:
    """Dropping it silently would make the user wait for less than was asked for."""
    with pytest.raises(InvalidValue, match=r"^tpu: "):
        parse_tpu(text)


@pytest.mark.parametrize(
    ("text", "device"),
    [
        ("H100x8", gpu("H100", 8)),
        ("h100X8", gpu("H100", 8)),
        ("H100 x 8", gpu("H100", 8)),
        ("H100:8", gpu("H100", 8)),
        ("H100", gpu("H100", 1)),
        ("8", gpu("auto", 8)),
        (" 1 ", gpu("auto", 1)),
        ("A100,H100x8", gpu("A100,H100", 8)),
        ("A100x8, H100:8", gpu("A100,H100", 8)),
        ("A100,H100", gpu("A100,H100", 1)),
        ("A100,a100x2", gpu("A100", 2)),
        ("RTX4090", gpu("RTX4090", 1)),
        ("rtx4090x2", gpu("RTX4090", 2)),
        ("L40Sx4", gpu("L40S", 4)),
    ],
)
def test_gpus_are_read_as_variants_and_a_count(text: str, device: Device) -> None:
    """Every notation in use; the x of an RTX4090 is no count of 4090."""
    assert device == parse_gpu(text)


@pytest.mark.parametrize("variant", GPU_VARIANTS)
def test_every_gpu_variant_can_be_asked_for_with_and_without_a_count(variant: str) -> None:
    """No name may be swallowed by the notation of the count."""
    assert gpu(variant, 1) == parse_gpu(variant.lower())
    assert gpu(variant, 4) == parse_gpu(f"{variant}x4") == parse_gpu(f"{variant}:4")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("H300", "did you mean H200 or H100"),
        ("RTX4091", "did you mean RTX4090"),
        ("RTX4091x2", "did you mean RTX4090"),
        ("A100,H300x8", "unknown variant 'H300'"),
        ("tensorcore", "use one of A100, A10G"),
        ("autox8", "unknown variant 'AUTO'"),
        ("H100x0", "a count that is not from 1 to 9999"),
        ("H100x-1", "a count that is not from 1 to 9999"),
        ("H100x", "a count that is not from 1 to 9999"),
        ("H100x8x8", "a count that is not from 1 to 9999"),
        ("H100x" + "9" * 5000, "a count that is not from 1 to 9999"),
        ("8xH100", "names no variant"),
        ("A100,8", "names no variant"),
        ("A100,", "names no variant"),
        ("0", "names no variant"),
        ("-1", "is a count that is not from 1 to 9999"),
        ("", "names no variant"),
        ("A100x4,H100x8", "different counts: 4 A100, 8 H100"),
        ("A100x8,H100", "only some of the alternatives"),
        ("A100x8,L4,H100x8", "only some of the alternatives"),
    ],
)
def test_what_is_no_gpu_is_refused_by_field_name(text: str, said: str) -> None:
    """A job with a variant that no host has would wait for ever. A count after only the first of
    two variants is ambiguous.
    """
    with pytest.raises(InvalidValue, match=said) as error:
        parse_gpu(text, field="accelerator")

    assert str(error.value).startswith("accelerator: ")
