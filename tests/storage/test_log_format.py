"""The format of stored log lines."""

from hypothesis import given
from hypothesis import strategies as st

from iris.storage.log_format import MAX_PIECE, LineSplitter, Stream, decode, encode


@given(st.lists(st.binary(max_size=200), max_size=20))
def test_bytes_cut_anywhere_come_back_as_they_were_written(parts: list[bytes]) -> None:
    """A program writes in pieces of any size; what a user reads must not depend on where they were
    cut.
    """
    splitter = LineSplitter()
    chunk = b"".join(encode(1, Stream.STDOUT, splitter.feed(part)) for part in parts)
    chunk += encode(2, Stream.STDOUT, splitter.flush(ended=True), cut=True)

    assert b"".join(line.written for line in decode(chunk)) == b"".join(parts)


def test_a_line_without_end_is_stored_in_pieces_of_bounded_size() -> None:
    """A program that never prints a newline must not make its agent hold all of its output."""
    splitter = LineSplitter()

    pieces = splitter.feed(b"x" * (3 * MAX_PIECE + 10)) + splitter.flush(ended=True)

    assert [len(data) for data, _ in pieces] == [MAX_PIECE, MAX_PIECE, MAX_PIECE, 10]
    assert [goes_on for _, goes_on in pieces] == [True, True, True, False]


def test_a_prompt_without_its_newline_is_joined_to_what_follows() -> None:
    """`input("name? ")` is shown while the program waits, and its line is still one line
    afterwards.
    """
    splitter = LineSplitter()
    pieces = splitter.feed(b"name? ") + splitter.flush(ended=False) + splitter.feed(b"iris\n")

    assert pieces == [(b"name? ", True), (b"iris", False)]


def test_a_record_keeps_its_time_its_stream_and_bytes_that_are_no_text() -> None:
    """Logs hold what was written, whatever it was; only showing it replaces what is not UTF-8."""
    (line,) = decode(encode(1763700000123, Stream.STDERR, [(b"\xff\x00 two  spaces ", False)]))

    assert (line.at_ms, line.stream, line.data) == (
        1763700000123,
        Stream.STDERR,
        b"\xff\x00 two  spaces ",
    )
    assert line.text == "�\x00 two  spaces "
