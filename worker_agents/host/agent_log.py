"""Ships the agent's own log to the store, where `iris logs --agent HOST` finds it after the machine
is gone.

The log is written to files in the agent's directory, and shipped from there like a program's
output. Each agent process begins a file, and continues in another one when that is large. Every
file is a folder of its own in the store. The next agent ships what a killed agent did not.

The machine keeps at most `MAX_FILES` files of `MAX_FILE_BYTES`. In the store nothing is deleted: an
idle agent logs little, and a rule of the bucket sets how long it keeps the objects below `agents/`.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from iris.activities.host.files import logs
from iris.activities.host.files.logs import LogShipper
from iris.concurrency import pause
from iris.model import store_paths
from iris.model.units import MIB
from iris.storage.log_format import Stream
from iris.storage.object_store import Store
from iris.worker_agents.logging_setup import FieldsFormatter, host_of

logger = logging.getLogger(__name__)

#: The size of a log file at which the agent begins another file, in bytes.
MAX_FILE_BYTES = 4 * MIB
#: The number of the latest log files that stay on the machine, whether they are shipped or not.
MAX_FILES = 8
#: The interval between checks for new log lines.
SHIP_INTERVAL = timedelta(seconds=0.5)
#: The longest time that a stopping agent waits until its last log lines are stored.
FLUSH_TIMEOUT = timedelta(seconds=3)


@contextlib.asynccontextmanager
async def shipping_own_log(
    store: Store, cluster: str, host_id: str, directory: Path
) -> AsyncIterator[None]:
    """Ships the log of this host's agent for the duration of the block: the process' records,
    except those about other hosts.

    Failures of the disk or the store do not reach the caller.

    Args:
        directory: the agent's directory, which no other agent uses.
    """
    prefix = store_paths.agent_logs(cluster, host_id)
    log = _OwnLog(directory / "agent-log", prefix, host_id)
    stop = asyncio.Event()
    shipping = asyncio.create_task(_ship_until(stop, _Files(store, prefix, log)))
    logging.getLogger().addHandler(log)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(log)
        stop.set()
        await asyncio.wait({shipping}, timeout=FLUSH_TIMEOUT.total_seconds())
        shipping.cancel()
        log.close()


class _OwnLog(logging.Handler):
    """Writes log records to the latest log file, and begins another file when the latest one is
    large.
    """

    def __init__(self, directory: Path, prefix: str, host_id: str) -> None:
        super().__init__()
        self.setFormatter(FieldsFormatter())
        self.addFilter(
            lambda record: host_of(record) in ("", host_id) and not _about_itself(record, prefix)
        )
        self._directory = directory
        #: The log files that this process wrote.
        self.mine: set[Path] = set()
        #: The log file to which records are written; None if no file can be written now.
        self.latest: Path | None = None
        self._missed = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Writes the record and never raises: a log that cannot be written must not stop the work
        that it records.
        """
        try:
            text = self.format(record)
        except Exception as error:  # arguments that do not fit the message
            text = f"{record.msg!r} could not be formatted: {error}"
        try:
            with self._file().open("a", errors="backslashreplace") as file:
                if self._missed:
                    file.write(
                        f"{self._missed} records are missing here, because they could not be"
                        " written\n"
                    )
                file.write(f"{text}\n")
            self._missed = 0
        except OSError:  # a full disk
            self._missed += 1

    def unshipped(self) -> list[Path]:
        """Returns the files that may have something to ship, the oldest first."""
        return sorted(self._directory.glob("*.log"))

    def retire(self, file: Path) -> None:
        """Marks the file as shipped. It stays for people on this machine, until `prune` deletes
        it.
        """
        with contextlib.suppress(OSError):
            file.rename(file.with_suffix(".shipped"))
            file.with_suffix(".state").unlink(missing_ok=True)

    def prune(self) -> None:
        """Deletes the oldest files beyond `MAX_FILES`."""
        stems = sorted({file.stem for file in self._directory.glob("*")})
        for file in (
            file for stem in stems[:-MAX_FILES] for file in self._directory.glob(f"{stem}.*")
        ):
            with contextlib.suppress(OSError):
                file.unlink()

    def _file(self) -> Path:
        if (
            self.latest is None
            or not self.latest.exists()
            or self.latest.stat().st_size > MAX_FILE_BYTES
        ):
            self._directory.mkdir(parents=True, exist_ok=True)
            name = f"{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}-{os.getpid()}.log"
            self.latest = self._directory / name
            self.mine.add(self.latest)
        return self.latest


class _Files:
    """The agent's log files, and the shippers that store them."""

    def __init__(self, store: Store, prefix: str, log: _OwnLog) -> None:
        self._store = store
        self._prefix = prefix
        self._log = log
        self._shippers: dict[Path, LogShipper] = {}

    async def ship(self, *, all_ended: bool) -> None:
        """Ships what is due, and everything of files that are no longer written to.

        Raises:
            OSError: a file cannot be read.
        """
        for file in self._log.unshipped():
            shipper = self._shippers.setdefault(file, self._shipper(file))
            ended = all_ended or file != self._log.latest
            while not (done := await shipper.ship(ended=ended)) and shipper.behind:
                pass
            if done and ended:
                del self._shippers[file]
                self._log.retire(file)
        self._log.prune()

    def _shipper(self, file: Path) -> LogShipper:
        return LogShipper(
            self._store,
            f"{self._prefix}/{file.stem}",
            {Stream.STDERR: file},
            file.with_suffix(".state"),
            taken_over=file not in self._log.mine,
        )


async def _ship_until(stop: asyncio.Event, files: _Files) -> None:
    last = False
    while not last:
        await pause(stop, SHIP_INTERVAL)
        last = stop.is_set()
        try:
            await files.ship(all_ended=last)
        except OSError as error:
            logger.warning("the agent's own log cannot be shipped: %s", error)


def _about_itself(record: logging.LogRecord, prefix: str) -> bool:
    """Returns True for records about a failure to ship this log. Logging them in it would add a
    line for each try.
    """
    return record.name == __name__ or (
        record.name == logs.__name__ and any(prefix in str(each) for each in record.args or ())
    )
