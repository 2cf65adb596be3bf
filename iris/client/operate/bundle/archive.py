"""A bundle's content, collected within bounds of time and size, and its archive."""

import asyncio
import io
import json
import os
import re
import tarfile
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from temporalio.service import RPCError

from iris.client.operate.bundle.redaction import Redactor
from iris.model.errors import InvalidValue, IrisError, first_line
from iris.model.units import MIB, format_bytes
from iris.storage.files import writing
from iris.storage.object_store import STORE_ERRORS

#: The maximum size in bytes of one file and of all files of a bundle, so that the bundle can be
#: sent by mail. The JSON of 10,000 hosts has some 6 MiB.
MAX_FILE, MAX_ALL = 16 * MIB, 64 * MIB
#: The maximum number of characters of a log line in a bundle. The rest of a longer line is cut off.
MAX_LINE = 4_000
#: The name of the file in a bundle that lists the missing parts and the reasons.
MISSING = "missing.txt"


class Collection:
    """The files of a debug bundle, and the parts that could not be collected."""

    def __init__(self) -> None:
        #: The content of each file, by the file's name: a text, or a value that is written as JSON.
        self.files: dict[str, Any] = {}
        #: The reason why each missing part is missing, by the part's name.
        self.missing: dict[str, str] = {}

    def add(self, name: str, content: Any) -> None:
        """Adds a file. A text becomes a text file, anything else JSON."""
        self.files[name] = content

    def add_log(self, name: str, lines: list[str]) -> None:
        """Adds the lines of a log."""
        self.add(name, "".join(f"{line}\n" for line in lines))

    def lacks(self, name: str, reason: str) -> None:
        """Notes that a part is missing."""
        self.missing[name] = reason

    async def collect(
        self, name: str, read: Callable[[], Awaitable[Any]], *, within: timedelta
    ) -> bool:
        """Adds what `read` returns, or notes why it is missing. None adds nothing: `read` has added
        files itself. Returns whether `read` has succeeded.

        Args:
            name: the name of the file, or of what is missing.
            within: how long the reading may take.
        """
        try:
            content = await asyncio.wait_for(read(), within.total_seconds())
        except TimeoutError:
            self.lacks(name, f"no answer within {within.total_seconds():g} s")
        except (IrisError, RPCError, OSError, *STORE_ERRORS) as error:
            self.lacks(name, first_line(error))
        except Exception as error:  # a fault in one part must not cost the others
            self.lacks(name, f"{type(error).__name__}: {first_line(error)}")
        else:
            if content is not None:
                self.add(name, content)
            return True
        return False

    async def collect_in_turn(
        self, parts: Mapping[str, Callable[[], Awaitable[Any]]], *, within: timedelta
    ) -> bool:
        """Collects parts that one workflow answers. After one that fails, the others are missing,
        too. Returns whether all have succeeded.
        """
        failed = ""
        for name, read in parts.items():
            if failed:
                self.lacks(name, f"not asked, because {failed} is missing")
            elif not await self.collect(name, read, within=within):
                failed = name
        return not failed

    def written(self, redactor: Redactor) -> dict[str, bytes]:
        """Returns the bytes of all files by their names, without secrets, and with long lines of
        logs shortened. `missing.txt` is the last.
        """
        found: dict[str, bytes] = {}
        for name, content in sorted(self.files.items()):
            if isinstance(content, str):
                text = _with_short_lines(redactor.text(content))
            else:
                text = json.dumps(redactor.json(content), indent=2, ensure_ascii=False) + "\n"
            data = text.encode(errors="replace")
            if len(data) > MAX_FILE or sum(map(len, found.values())) + len(data) > MAX_ALL:
                self.lacks(name, f"it has {format_bytes(len(data))}, which is too much")
            else:
                found[name] = data
        if self.missing:
            self.missing = {name: redactor.text(why) for name, why in self.missing.items()}
            lines = (f"{name}: {why}\n" for name, why in sorted(self.missing.items()))
            found[MISSING] = "".join(lines).encode(errors="replace")
        return found


def _with_short_lines(text: str) -> str:
    return re.sub(rf"^(.{{{MAX_LINE}}}).+", r"\1 …", text, flags=re.MULTILINE)


def default_name(cluster: str, now: datetime) -> str:
    """Returns the name of a bundle of this cluster, without an ending."""
    safe = "".join(each if each.isalnum() or each in "._-" else "-" for each in cluster)
    return f"iris-debug-{safe}-{now:%Y%m%dT%H%M%SZ}"


def check_output(file: Path) -> None:
    """Checks that an archive can be written to the file.

    Raises:
        InvalidValue: the file exists, or its folder does not.
    """
    if file.exists():
        raise _exists(file)
    if not file.parent.is_dir():
        raise InvalidValue(
            "--output", file, "is in a folder that does not exist", "create the folder first"
        )


def write_archive(file: Path, folder: str, files: dict[str, bytes], now: datetime) -> None:
    """Writes a compressed archive that only its owner may read: whole or not at all.

    Args:
        folder: the folder of the files in the archive.

    Raises:
        InvalidValue: the file exists.
        CannotWrite: the file cannot be written.
    """
    with writing(file):
        try:
            opened = os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
        except FileExistsError:
            raise _exists(file) from None
        try:
            with opened, tarfile.open(fileobj=opened, mode="w:gz") as archive:
                for name, data in files.items():
                    entry = tarfile.TarInfo(f"{folder}/{name}")
                    entry.size, entry.mtime, entry.mode = len(data), int(now.timestamp()), 0o600
                    archive.addfile(entry, io.BytesIO(data))
        except BaseException:  # also Ctrl-C
            file.unlink()
            raise


def _exists(file: Path) -> InvalidValue:
    return InvalidValue("--output", file, "exists", "choose another file")
