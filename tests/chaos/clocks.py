"""Clocks of single processes that can be set: `clock.c` is preloaded into them."""

import shutil
import struct
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("clock.c")
_FORMAT = "q"


def clock_library(directory: Path) -> Path | None:
    """Builds the library in the directory, and returns its path; None: there is no C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    library = directory / "clock.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", library, SOURCE], check=True)
    return library


def clock_env(library: Path | None, file: Path) -> dict[str, str]:
    """Returns the variables for a process whose clock has its error in the file."""
    if library is None:
        return {}
    if not file.exists():
        step(file, 0)
    return {"LD_PRELOAD": str(library), "CHAOS_CLOCK": str(file)}


def step(file: Path, seconds: int) -> None:
    """Sets a clock so many seconds ahead of the machine's."""
    if not file.exists():
        file.write_bytes(struct.pack(_FORMAT, 0))
    with file.open("r+b") as opened:
        opened.write(struct.pack(_FORMAT, seconds))
