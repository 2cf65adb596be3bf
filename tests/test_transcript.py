"""The runner of transcripts itself: one that cannot fail would let every scenario pass."""

from pathlib import Path

import pytest

from tests.transcript import check

TEXT = """\
# Two commands, one output block.
add 1
add 2
----
1
3

show
----
3
"""


class Sum:
    """A subject of transcripts with one number as its state."""

    def __init__(self) -> None:
        self.total = 0

    def execute(self, line: str) -> str:
        command, *numbers = line.split()
        if command == "add":
            self.total += int(numbers[0])
        return str(self.total)


def test_a_transcript_whose_outputs_are_right_passes(tmp_path: Path) -> None:
    """State is kept from block to block."""
    (tmp_path / "sum.txt").write_text(TEXT)
    check(tmp_path / "sum.txt", Sum().execute)


def test_a_transcript_with_one_wrong_output_fails(tmp_path: Path) -> None:
    """Every block is compared, not only the last."""
    (tmp_path / "sum.txt").write_text(TEXT.replace("1\n3\n", "1\n4\n"))
    with pytest.raises(AssertionError):
        check(tmp_path / "sum.txt", Sum().execute)


def test_present_outputs_are_written_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person reviews them as a diff; comments and commands stay as they were."""
    (tmp_path / "sum.txt").write_text(TEXT.replace("1\n3\n", "") + "\nadd 3\n")
    monkeypatch.setenv("IRIS_WRITE_TRANSCRIPTS", "1")
    check(tmp_path / "sum.txt", Sum().execute)
    assert (tmp_path / "sum.txt").read_text() == TEXT + "\nadd 3\n----\n6\n"
