"""What the terminal of a command can show."""

import os
import sys
from typing import TextIO


def is_live(stream: TextIO | None = None) -> bool:
    """Returns whether progress is drawn on standard error: a terminal that can move its cursor, and not the log of a CI."""
    stream = stream or sys.stderr
    return stream.isatty() and _moves() and not os.environ.get("CI")


def shows_colours(stream: TextIO) -> bool:
    """Returns whether a stream is a terminal that shows colours, and the user wants them (https://no-color.org)."""
    return stream.isatty() and _moves() and not os.environ.get("NO_COLOR")


def _moves() -> bool:
    return os.environ.get("TERM", "dumb") not in ("dumb", "unknown")
