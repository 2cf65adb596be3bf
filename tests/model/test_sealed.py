"""Sealed values: only the cluster's private keys open them, and only where they were sealed for."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris.model.errors import InvalidValue
from iris.model.sealed import (
    Place,
    PrivateKeys,
    SealedWith,
    key_id,
    keys_text,
    parse_keys,
    public_of,
    rotated,
    seal,
)
from tests.strategies import CHEAP

OLD, NOW, NEXT, NEW = (bytes([number]) * 32 for number in range(1, 5))
PLACE = Place("lab", "job/ada/train/0123456789abcdef", "HF_TOKEN")


def opened_by(*keys: bytes, value: bytes = b"a value", place: Place = PLACE) -> bytes:
    """Seals a value with the key NOW for PLACE, and opens it elsewhere."""
    return PrivateKeys(keys).open(seal(public_of(NOW), value, PLACE, b"\7" * 32), place)


@CHEAP
@given(st.binary(max_size=2_000))
def test_any_value_comes_back(value: bytes) -> None:
    """A token, a key in PEM, or bytes: the program gets what its user has."""
    assert opened_by(NEXT, NOW, value=value) == value


@pytest.mark.parametrize(
    "place",
    [
        PLACE._replace(cluster="other"),
        PLACE._replace(path="job/bob/train/0123456789abcdef"),
        PLACE._replace(path="job/ada/other/0123456789abcdef"),
        PLACE._replace(name="OTHER"),
    ],
)
def test_a_value_that_was_copied_elsewhere_cannot_be_opened(place: Place) -> None:
    """Who may write to the store could otherwise put another user's ciphertext below a job of their
    own, which prints it.
    """
    with pytest.raises(
        ValueError, match="changed, or it was sealed for another cluster, object or name"
    ):
        opened_by(NOW, place=place)


def test_a_changed_value_cannot_be_opened() -> None:
    """A program must not get another value because some bytes were changed."""
    sealed = seal(public_of(NOW), b"a value", PLACE, b"\7" * 32)
    data = bytearray(base64.b64decode(sealed.data))
    for at in range(0, len(data), 5):
        data[at] ^= 1
        changed = sealed.model_copy(update={"data": base64.b64encode(data).decode()})
        with pytest.raises(ValueError, match="changed"):
            PrivateKeys((NOW,)).open(changed, PLACE)
        data[at] ^= 1


def test_a_host_without_the_key_says_which_it_is() -> None:
    """After a rotation, the operator needs to know which key the host lacks."""
    with pytest.raises(SealedWith, match=key_id(public_of(NOW))):
        opened_by(OLD)


def test_the_next_key_is_known_everywhere_before_it_is_used() -> None:
    """Hosts may get the file of keys long after the rotation: what is sealed then is opened with
    the file from before.
    """
    before = (NOW, NEXT, OLD)
    after = rotated(before, NEW, used=[])

    assert after[:3] == (NEXT, NEW, NOW)
    assert after[0] in before


def test_a_rotation_keeps_the_keys_of_what_is_sealed() -> None:
    """The retry of a live job still needs its key. A key without values is removed, so that it
    cannot be used later.
    """
    assert OLD in rotated((NOW, NEXT, OLD), NEW, used=[key_id(public_of(OLD))])
    assert OLD not in rotated((NOW, NEXT, OLD), NEW, used=[key_id(public_of(NOW))])
    assert rotated((NOW,), NEW, used=[])[:2] == (NEW, NOW)


def test_a_file_of_keys_keeps_its_lines() -> None:
    """The dates of earlier keys stay; the error about a malformed file names the line and shows no
    key.
    """
    first = keys_text([NOW, NEXT], "2026-01-01")
    second = keys_text(rotated(parse_keys(first, "f").keys, NEW, used=[]), "2026-02-02", first)

    assert parse_keys(second, "f").keys == (NEXT, NEW, NOW)
    assert [line.split()[0] for line in second.splitlines()] == [
        "2026-01-01",
        "2026-02-02",
        "2026-01-01",
    ]
    for planted in ("planted", "plantéd"):
        with pytest.raises(InvalidValue, match="line 2") as caught:
            parse_keys(f"{first.splitlines()[0]}\n{planted}\n", "f")
        assert planted not in str(caught.value)
