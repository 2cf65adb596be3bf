"""The script that draws README's terminal: what the commands print, when, and nothing else."""

import importlib.util
import os
import re
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
_spec = importlib.util.spec_from_file_location("record_demo", ROOT / "scripts/record-demo.py")
assert _spec is not None
assert _spec.loader is not None
recording = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(recording)


def delays(picture: str) -> list[float]:
    return [float(seconds) for seconds in re.findall(r"animation-delay: ([0-9.]+)s", picture)]


def test_the_lines_of_a_command_are_what_its_terminal_shows(tmp_path: Path) -> None:
    """The program must see a terminal of the picture's width, or it would print tables for
    files.
    """
    command = "sh -c 'test -t 1 && stty size && printf \"two\\nlines without an end\\n\"'"
    lines = [line.text for line in recording.run(command, dict(os.environ), tmp_path)]

    assert lines == [f"40 {recording.WIDTH}", "two", "lines without an end"]


def test_a_command_that_fails_ends_the_recording(tmp_path: Path) -> None:
    """README must not show an error because the machine that recorded it was broken."""
    with pytest.raises(subprocess.CalledProcessError):
        list(recording.run("sh -c 'echo no; exit 3'", dict(os.environ), tmp_path))


def test_the_picture_shows_each_line_after_the_one_before_without_long_waits() -> None:
    """Nobody watches a cluster start: a minute between two lines is a moment in the picture."""
    lines = [
        recording.Line(text, at)
        for text, at in (("$ one", 0.0), ("a <b> & c", 0.3), ("after a minute", 60.0))
    ]
    picture = recording.drawn(lines)

    assert "".join(ET.fromstring(picture).itertext()).replace("\xa0", " ").count("a <b> & c") == 1
    shown = delays(picture)
    assert len(shown) == len(lines)
    assert shown == sorted(shown)
    assert shown[-1] - shown[0] <= 2 * recording.PAUSE
    assert "<script" not in picture


def test_a_line_wider_than_the_terminal_is_broken_as_a_terminal_does() -> None:
    """Each row has a delay of its own, or the rest of the line would be there from the
    beginning.
    """
    picture = recording.drawn([recording.Line("x" * (recording.WIDTH + 5), 0.0)])

    assert len(delays(picture)) == 2
