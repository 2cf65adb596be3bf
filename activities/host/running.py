"""Describes an attempt whose program runs."""

from pathlib import Path
from typing import NamedTuple

from iris.activities.host.runtimes.base import Launch


class Running(NamedTuple):
    """The running program of an attempt, for commands and profilers that run beside it."""

    key: str
    attempt: int
    directory: Path
    launch: Launch
    #: The program's process id on the host; None: the container engine does not report it.
    pid: int | None
    shim: int


class Root(NamedTuple):
    """The root of a program's process tree: its shim, or the program's first process itself if `own` is True."""

    pid: int
    own: bool
