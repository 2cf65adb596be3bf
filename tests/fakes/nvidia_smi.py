"""A stand-in for `nvidia-smi`: prints what a test sets, in the forms of the real program."""

import os
from pathlib import Path

_PROGRAM = """\
#!/bin/sh
cd "$(dirname "$0")"
if [ -e hangs ]; then exec sleep 600; fi
case "$1" in
    -L) cat listed ;;
    *utilization*) cat used ;;
    *) cat queried ;;
esac
exit "$(cat code)"
"""


class FakeNvidiaSmi:
    """The program in a directory of its own, which `path` puts before the others."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True)
        self.lists()
        self._writes("used", "")
        program = directory / "nvidia-smi"
        program.write_text(_PROGRAM)
        program.chmod(0o755)

    @property
    def path(self) -> str:
        return f"{self.directory}:{os.environ['PATH']}"

    def lists(self, *uuids: str, name: str = "NVIDIA H100 80GB HBM3", instances: str = "") -> None:
        """The machine has these GPUs, numbered from 0."""
        mode = "Enabled" if instances else "Disabled"
        rows = [
            f"{n}, {uuid}, {name}, 81559, 00000000:{n}B:00.0, {mode}\n"
            for n, uuid in enumerate(uuids)
        ]
        self._says(
            "".join(rows),
            "".join(f"GPU {n}: {name} (UUID: {uuid})\n" for n, uuid in enumerate(uuids))
            + instances,
            0,
        )

    def uses(self, *percents: int | str, memory: int = 40_000) -> None:
        """The listed GPUs are used so much, in percent, with so much memory each, in MiB."""
        listed = [
            line.split(", ") for line in (self.directory / "queried").read_text().splitlines()
        ]
        rows = [
            f"{uuid}, {percent}, {memory if percent else 4}, {total}\n"
            for (_, uuid, _, total, *_), percent in zip(listed, percents, strict=True)
        ]
        self._writes("used", "".join(rows))

    def loses_one(self) -> None:
        """The driver does not reach one of them."""
        said = (
            "Unable to determine the device handle for GPU0000:0B:00.0: GPU is lost.  Reboot the"
            " system to recover this GPU\n"
        )
        self._says(said, said, 15)

    def fails(self) -> None:
        """The driver is not loaded."""
        said = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n"
        self._says(said, said, 9)

    def hangs(self) -> None:
        """The program waits in the driver."""
        (self.directory / "hangs").touch()

    def _says(self, queried: str, listed: str, code: int) -> None:
        for name, text in (("queried", queried), ("listed", listed), ("code", str(code))):
            self._writes(name, text)

    def _writes(self, name: str, text: str) -> None:
        new = self.directory / f"{name}.new"
        new.write_text(text)
        new.replace(self.directory / name)
