"""The line of its log by which a failed job explains itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris.model.host.faults import MOST, error_line, is_error_line
from tests.strategies import CHEAP

TRACEBACK = """\
Error: the first warning
Traceback (most recent call last):
  File "train.py", line 3, in <module>
    load()
  File "train.py", line 2, in load
    raise ValueError("no data")
ValueError: no data
"""


@pytest.mark.parametrize(
    ("output", "line"),
    [
        (TRACEBACK, "ValueError: no data"),
        (TRACEBACK + "cleaning up\n", "ValueError: no data"),
        (
            TRACEBACK + "\nDuring handling …\n\n" + TRACEBACK.replace("no data", "worse"),
            "ValueError: worse",
        ),
        # A program's own exception may have any name; the frames before it may be cut off.
        ("Traceback (most recent call last):\n  File x\nmine.Stop: at once", "mine.Stop: at once"),
        ('    raise OSError("x")\nOSError: x\n', "OSError: x"),
        ("KeyboardInterrupt", "KeyboardInterrupt"),
        ("one\nerror[E0308]: mismatched types\nerror: aborting", "error[E0308]: mismatched types"),
        ("make: *** [all] Error 2\nmore", "make: *** [all] Error 2"),
        ("  \x1b[31mfatal: not a repository\x1b[0m", "fatal: not a repository"),
        ("10%\r20%\rpanic: out of range", "panic: out of range"),
        ("0 errors\nthe error rate is 3\n", ""),
        ("", ""),
    ],
)
def test_the_line_that_explains_a_failure_is_found(output: str, line: str) -> None:
    """`exited with code 1` made every user read the log for what one line of it says."""
    assert error_line(output) == line


@CHEAP
@given(st.text(st.sampled_from("Error: T\n\r\x1b[31m ") | st.characters(codec="utf-8")))
def test_the_line_is_one_short_line_without_control_characters(output: str) -> None:
    """The line is shown in terminals and tables, and the author of the program chose it."""
    line = error_line(f"Error: {output}")

    assert len(line) <= MOST
    assert line.isprintable() or not any(ord(each) < 32 or 127 <= ord(each) < 160 for each in line)
    assert "\n" not in line


@pytest.mark.parametrize(
    ("line", "reports"),
    [
        ("Traceback (most recent call last):", True),
        ("\x1b[31mValueError\x1b[0m: bad", True),
        ("torch.cuda.OutOfMemoryError: CUDA out of memory", True),
        ("make: *** error: no rule", True),
        ("The TPU is already in use by process with pid 7", True),
        ("epoch 3 error_rate=0.1", False),
        ("no errors", False),
        ("", False),
        (" " * 1_000_000 + "ValueError: beyond what is looked at", False),
    ],
)
def test_a_line_is_known_as_one_that_reports_an_error(line: str, reports: bool) -> None:
    """A person who looks through a log finds these lines marked."""
    assert is_error_line(line) is reports
