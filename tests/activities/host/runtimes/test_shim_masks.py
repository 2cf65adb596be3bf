"""Values of secrets in a program's output, however the output is cut into pieces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris.activities.host.runtimes.shim.masks import LEAST, MASK, Masker
from iris.model.job.secrets import LEAST_MASKED
from tests.strategies import CHEAP


def masked(values: list[str], *pieces: bytes) -> bytes:
    """Everything that is written of a stream that is read in these pieces."""
    masker = Masker(values)
    return b"".join(map(masker.feed, pieces)) + masker.end()


@pytest.mark.parametrize(
    ("values", "text", "written"),
    [
        (["hunter2!"], b"password hunter2! ok", b"password *** ok"),
        (["hunter2!"], b"hunter2!hunter2!", b"******"),
        (["hunter2!"], b"hunter2", b"hunter2"),
        (["short"], b"short", b"short"),
        (["abcdef", "abcdefgh"], b"abcdefgh abcdef", b"*** ***"),
        (["abcxyz", "xyzdef"], b"abcxyzdef", b"***"),
        (["aaaaaa"], b"a" * 1000, b"***"),
        (["grüße-ü"], "grüße-ü".encode(), b"***"),
        (["first line\nsecond line"], b"> second line\n> first line\n", b"> ***\n> ***\n"),
        ([" padded \n"], b"a(padded)b", b"a(***)b"),
        (["raw\udcff\udcfevalue"], b"raw\xff\xfevalue", b"***"),
    ],
)
def test_values_are_replaced(values: list[str], text: bytes, written: bytes) -> None:
    """Whole, in one piece, and byte by byte."""
    assert masked(values, text) == written
    assert masked(values, *[text[at : at + 1] for at in range(len(text))]) == written


def test_output_that_is_no_secret_is_not_delayed() -> None:
    """Users follow logs: a line must not wait for the next one."""
    masker = Masker(["hunter2!"])

    assert masker.feed(b"step 1\n") == b"step 1\n"
    assert masker.feed(b"the hun") == b"the "
    assert masker.feed(b"gry\n") == b"hungry\n"


@CHEAP
@given(st.data())
def test_no_value_is_written_and_pieces_do_not_matter(data: st.DataObject) -> None:
    """Programs flush where they like, and pipes cut where they like. Few letters make values
    overlap and repeat.
    """
    values = data.draw(st.lists(st.text("ab\n", min_size=1, max_size=10), max_size=3))
    text = data.draw(
        st.lists(st.sampled_from([*values, "a", "b", "\n", "ab"]), max_size=30).map("".join)
    ).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=10)))
    pieces = [text[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(text)], strict=True)]

    whole, piecewise = masked(values, text), masked(values, *pieces)

    assert whole == piecewise
    assert not [value for value in values if len(value) >= LEAST and value.encode() in whole]
    if all(len(value) < LEAST for value in values):
        assert whole == text


def test_the_shim_and_the_documentation_mean_the_same_length() -> None:
    """The shim imports nothing of Iris, so the number stands twice."""
    assert LEAST == LEAST_MASKED
    assert len(MASK) < LEAST
