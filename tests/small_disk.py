"""A disk that is soon full."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: In a namespace of its own, for as long as its standard input is open.
HELD = 'mount -t tmpfs -o "size=$1k" tmpfs "$2" && echo mounted && exec cat'


@contextmanager
def small_disk(directory: Path, kib: int) -> Iterator[Path]:
    """A disk of so many KiB, for as long as it is needed. Who may not mount one has it where
    another process has mounted it.
    """
    directory.mkdir()
    size, place = f"size={kib}k", str(directory)
    if (
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", size, "tmpfs", place], capture_output=True
        ).returncode
        == 0
    ):
        try:
            yield directory
        finally:
            subprocess.run(["umount", "--lazy", place], check=True)
        return
    command = [
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        HELD,
        "sh",
        str(kib),
        place,
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"mounted\n", (
            "neither root nor a user namespace can be had here"
        )
        yield Path(f"/proc/{holder.pid}/root{directory.absolute()}")
