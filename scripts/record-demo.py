#!/usr/bin/env python3
"""Runs the commands of README's recording in a terminal, and draws the terminal as
docs/pictures/demo.svg.

The picture has no script and needs no network. Its lines appear one after another, as they did in
the terminal, and stay.
"""

import argparse
import contextlib
import fcntl
import os
import pty
import shlex
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "pictures" / "demo.svg"
COMMANDS = (
    "iris cluster start --local --tpu v5litepod-16 -d",
    (
        "iris submit -n train --tpu v5litepod-16 -- sh -c 'echo task $IRIS_TASK_INDEX of"
        " $IRIS_NUM_TASKS'"
    ),
    "iris submit -q -n busy --tpu v5litepod-16 -- sleep 3600",
    "iris submit -q -n next --tpu v5litepod-16 --priority batch -- echo at last",
    "iris explain next",
    "iris cancel busy",
    "iris wait next",
)
TITLE = "Iris on a laptop: a cluster, a gang on a simulated TPU slice, and why the next one waits"
WIDTH = 100
PROMPT = "\x1b[1;32m$\x1b[0m "
#: In seconds: the longest pause between two lines, because nobody watches a cluster start, and the
#: one before each command.
PAUSE = 1.2
#: The names of the terminal in the picture, and of its lines: `iris-line-0`, …
NAME = "iris"
#: As rich's own format, without its fonts from another host. Rich gives each row a clip path, by
#: which the row's delay finds it.
FORMAT = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img">
<title>TITLE</title>
<style>
.{unique_id}-matrix {{ font: {char_height}px/{line_height}px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace }}
.{unique_id}-title {{ font: bold 18px sans-serif }}
.{unique_id}-matrix text {{ animation: appear .01s linear backwards }}
@keyframes appear {{ from {{ opacity: 0 }} }}
@media (prefers-reduced-motion) {{ .{unique_id}-matrix text {{ animation: none }} }}
DELAYS
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" /></clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


class Line(NamedTuple):
    """A line of the terminal, with its colours as the program wrote them, and the second at which
    it appeared.
    """

    text: str
    at: float


def record(commands: tuple[str, ...] = COMMANDS) -> list[Line]:
    """Runs the commands with an empty state directory, and returns what the terminal shows."""
    with tempfile.TemporaryDirectory(prefix="iris-", ignore_cleanup_errors=True) as directory:
        given = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("IRIS_", "NO_COLOR"))
        }
        programs = f"{Path(sys.executable).parent}:{given['PATH']}"
        # CI: progress is a line for each step, and moves no cursor.
        env = {
            **given,
            "PATH": programs,
            "IRIS_STATE_DIR": directory,
            "IRIS_USER": "ada",
            "CI": "true",
            "TERM": "xterm-256color",
        }
        lines: list[Line] = []
        try:
            for command in commands:
                lines.append(Line(f"{PROMPT}\x1b[1m{command}\x1b[0m", time.monotonic()))
                lines += run(command, env, Path(directory))
        finally:
            subprocess.run(
                ["iris", "cluster", "stop", "--yes"],
                env=env,
                cwd=directory,
                capture_output=True,
                check=False,
            )
    return lines


def run(command: str, env: dict[str, str], cwd: Path) -> Iterator[Line]:
    """Runs one command in a terminal of its own, and yields its lines when they are whole.

    Raises:
        CalledProcessError: the command failed.
    """
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 40, WIDTH, 0, 0))
    process = subprocess.Popen(
        shlex.split(command),
        env=env,
        cwd=cwd,
        stdin=its,
        stdout=its,
        stderr=its,
        start_new_session=True,
    )
    os.close(its)
    unfinished = b""
    with contextlib.suppress(OSError):  # the terminal is closed when its last program has ended
        while data := os.read(ours, 65536):
            *whole, unfinished = (unfinished + data).split(b"\n")
            yield from (Line(line.decode().rstrip("\r"), time.monotonic()) for line in whole)
    os.close(ours)
    if process.wait():
        raise subprocess.CalledProcessError(process.returncode, command)


def drawn(lines: list[Line]) -> str:
    """Returns the picture of a terminal as an SVG."""
    console = Console(
        width=WIDTH,
        record=True,
        file=StringIO(),
        force_terminal=True,
        color_system="truecolor",
        highlight=False,
    )
    delays, clock, before = [], 0.0, lines[0].at
    for line in lines:
        clock += PAUSE if line.text.startswith(PROMPT) else min(PAUSE, line.at - before)
        before = line.at
        text = Text.from_ansi(line.text)
        # A terminal breaks lines anywhere.
        for row in text.divide(range(WIDTH, len(text), WIDTH)) or [text]:
            selector = f'.{NAME}-matrix text[clip-path="url(#{NAME}-line-{len(delays)})"]'
            delays.append(f"{selector} {{ animation-delay: {clock:.2f}s }}")
            console.print(row, soft_wrap=True)
    picture = console.export_svg(
        title=TITLE, unique_id=NAME, code_format=FORMAT.replace("TITLE", TITLE)
    )
    return picture.replace("DELAYS", "\n".join(delays))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Record the terminal that README shows.")
    parser.add_argument(
        "--output", type=Path, default=PICTURE, metavar="FILE", help="default: the picture itself"
    )
    parser.parse_args().output.write_text(drawn(record()))
