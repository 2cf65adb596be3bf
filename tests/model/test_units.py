"""Quantities as people write them."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris.model.errors import InvalidValue
from iris.model.units import (
    GIB,
    KIB,
    MAX_BYTES,
    MAX_MILLICORES,
    MIB,
    TIB,
    format_bytes,
    format_cpu,
    format_duration,
    parse_bytes,
    parse_cpu,
    parse_duration,
)
from tests.strategies import CHEAP


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("8g", 8 * GIB),
        ("8G", 8 * GIB),
        ("8GB", 8 * GIB),
        ("8Gi", 8 * GIB),
        ("8GiB", 8 * GIB),
        ("8 gib", 8 * GIB),
        (" 512m ", 512 * MIB),
        ("1.5t", TIB + TIB // 2),
        ("4k", 4 * KIB),
        ("100b", 100),
        ("100", 100),
        (100, 100),
        ("0", 0),
    ],
)
def test_a_size_is_read_with_every_unit_a_power_of_1024(text: str | int, size: int) -> None:
    """A task that asks for "8g" must get what `docker run --memory 8g` would give it."""
    assert size == parse_bytes(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "g",
        "-1g",
        "8x",
        "8ib",
        "1e9",
        "1,5g",
        "8g8g",
        "nan",
        "8g 8",
        "9999999t",
        pytest.param("9" * 5000, id="5000 digits"),
    ],
)
def test_what_is_no_size_is_refused_by_field_name(text: str) -> None:
    """A slip of the pen must be named at submission, not become a job that waits for ever; however
    absurd, never a crash.
    """
    with pytest.raises(InvalidValue, match=r"^scratch: "):
        parse_bytes(text, field="scratch")


@CHEAP
@given(st.integers(0, MAX_BYTES))
def test_a_plain_number_of_bytes_is_taken_to_the_byte(size: int) -> None:
    """Sizes go through text more than once; a byte lost on the way would make a host that fits
    exactly not fit.
    """
    assert parse_bytes(size) == parse_bytes(f"{size}b") == size


@CHEAP
@given(st.integers(0, MAX_BYTES))
def test_a_size_as_shown_can_be_typed_in_again(size: int) -> None:
    """People copy what Iris shows them; to the one decimal shown it must mean the same."""
    assert abs(parse_bytes(format_bytes(size)) - size) <= size * 0.05


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (KIB, "1 KiB"),
        (1536 * MIB, "1.5 GiB"),
        (10 * GIB, "10 GiB"),
        (100 * TIB, "100 TiB"),
    ],
)
def test_a_size_is_shown_in_its_largest_unit(size: int, shown: str) -> None:
    """People read refusals, and 17179869184 is hard to read."""
    assert shown == format_bytes(size)


@pytest.mark.parametrize(
    ("text", "millicores"),
    [("4", 4000), (2, 2000), ("0.5", 500), (0.25, 250), ("1500m", 1500), ("0", 0), ("0.001", 1)],
)
def test_cores_are_read_whole_fractional_or_in_millicores(
    text: str | float, millicores: int
) -> None:
    """All three notations are in use, and they must not differ by a factor of a thousand."""
    assert millicores == parse_cpu(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "four",
        "-1",
        "nan",
        "inf",
        "0.0001",
        "2000000",
        "1.5m",
        pytest.param("9" * 5000 + "m", id="5000 digits"),
    ],
)
def test_what_is_no_number_of_cores_is_refused_by_field_name(text: str) -> None:
    """`nan` compares false with everything and would fit every host; a rounded-away request would
    be a job for free.
    """
    with pytest.raises(InvalidValue, match=r"^cpu: "):
        parse_cpu(text)


@CHEAP
@given(st.integers(0, MAX_MILLICORES))
def test_cores_as_shown_are_exactly_the_cores_meant(millicores: int) -> None:
    """Every millicore has a text of its own, so that a shown shortfall is never "needs 4, has
    4".
    """
    assert millicores == parse_cpu(format_cpu(millicores)) == parse_cpu(f"{millicores}m")


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("30s", timedelta(seconds=30)),
        ("250ms", timedelta(milliseconds=250)),
        ("1h30m", timedelta(hours=1, minutes=30)),
        ("1m30ms", timedelta(minutes=1, milliseconds=30)),
        ("2d", timedelta(days=2)),
        ("1.5h", timedelta(minutes=90)),
        ("10", timedelta(seconds=10)),
        (10, timedelta(seconds=10)),
        ("0", timedelta(0)),
        (" 5M ", timedelta(minutes=5)),
    ],
)
def test_a_duration_is_read_unit_by_unit(text: str | float, duration: timedelta) -> None:
    """Minutes and milliseconds share a letter; a timeout must not be off by 60,000."""
    assert duration == parse_duration(text)


@pytest.mark.parametrize(
    "text",
    ["", "s", "-5s", "5 s", "1h30", "30x", "1.2.3s", "nan", "inf", "40000d", "9" * 400 + "s"],
)
def test_what_is_no_duration_is_refused_by_field_name(text: str) -> None:
    """ "1h30" is an hour and a half to one reader and an hour and 30 seconds to another, so Iris
    does not guess.
    """
    with pytest.raises(InvalidValue, match=r"^timeout: "):
        parse_duration(text, field="timeout")


@pytest.mark.parametrize(
    ("duration", "shown"),
    [
        (timedelta(0), "0s"),
        (timedelta(milliseconds=250), "250ms"),
        (timedelta(seconds=40), "40s"),
        (timedelta(microseconds=200), "1ms"),  # "ran 0ms" would be a program that did not run
        (timedelta(seconds=59.7), "1m"),
        (timedelta(hours=1, minutes=30), "1h 30m"),
        (timedelta(hours=1, seconds=5), "1h 5s"),
        (timedelta(days=3, hours=4, minutes=59), "3d 4h"),
    ],
)
def test_a_duration_is_shown_in_its_two_largest_units(duration: timedelta, shown: str) -> None:
    """ "Waiting for 3d 4h" is an answer; 276543.2 seconds is not."""
    assert shown == format_duration(duration)
