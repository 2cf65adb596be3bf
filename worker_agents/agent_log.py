"""The agent's own log goes to the store too, where `iris logs --agent HOST` finds it when the machine is gone.

What is logged is written to files in the agent's directory, and shipped from there as a program's output is. Each life of the
agent's process begins a file, and goes on in another when it has become large; every file is a folder of its own in the store.
What a life could not ship before it was killed, the next one does.

On the machine there are never more than `MAX_FILES` files of `MAX_FILE` bytes. In the store nothing is deleted: an agent that has
little to do says little, and how long a bucket keeps what lies below `agents/` is a rule of the bucket.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from iris import names
from iris.activities import logship
from iris.activities.logship import LogShipper
from iris.logs import Stream
from iris.store import Store
from iris.units import MIB

logger = logging.getLogger(__name__)

#: A file that has become larger is followed by another one.
MAX_FILE = 4 * MIB
#: The latest files that stay on the machine, shipped or not.
MAX_FILES = 8
#: Between looks at what has been logged.
SHIP_EVERY = timedelta(seconds=0.5)
#: How long the end of the agent waits for the last lines to be stored.
LAST_WORDS = timedelta(seconds=3)
FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


@contextlib.asynccontextmanager
async def shipping_own_log(store: Store, cluster: str, host_id: str, directory: Path) -> AsyncIterator[None]:
    """Meanwhile, whatever this process logs is shipped. No failure of the disk or the store gets out of here.

    Args:
        directory: of the agent, which is the only one in it.
    """
    prefix = names.agent_logs(cluster, host_id)
    log = _OwnLog(directory / "agent-log", prefix)
    stop = asyncio.Event()
    shipping = asyncio.create_task(_ship_until(stop, _Files(store, prefix, log)))
    logging.getLogger().addHandler(log)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(log)
        stop.set()
        await asyncio.wait({shipping}, timeout=LAST_WORDS.total_seconds())
        shipping.cancel()
        log.close()


class _OwnLog(logging.Handler):
    """Writes what is logged into the latest file, and begins another when that has become large."""

    def __init__(self, directory: Path, prefix: str) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter(FORMAT))
        self.addFilter(lambda record: not _about_itself(record, prefix))
        self._directory = directory
        #: The files of this life.
        self.mine: set[Path] = set()
        #: The one that is written to; None: it cannot be now.
        self.latest: Path | None = None
        self._missed = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Never raises: a log that cannot be written is no reason not to do what it would have told of."""
        try:
            text = self.format(record)
        except Exception as error:  # the arguments of a message that do not fit it, as every handler meets them
            text = f"{record.msg!r} could not be put together: {error}"
        try:
            with self._file().open("a", errors="backslashreplace") as file:
                if self._missed:
                    file.write(f"{self._missed} records are missing here, which could not be written\n")
                file.write(f"{text}\n")
            self._missed = 0
        except OSError:  # a full disk
            self._missed += 1

    def unshipped(self) -> list[Path]:
        """The files that may have something to ship, the oldest first."""
        return sorted(self._directory.glob("*.log"))

    def retire(self, file: Path) -> None:
        """The file has been shipped; it stays for people on this machine, as long as there are not too many."""
        with contextlib.suppress(OSError):
            file.rename(file.with_suffix(".shipped"))
            file.with_suffix(".state").unlink(missing_ok=True)

    def prune(self) -> None:
        """Delete the oldest files beyond those that may stay."""
        lives = sorted({file.stem for file in self._directory.glob("*")})
        for file in (file for life in lives[:-MAX_FILES] for file in self._directory.glob(f"{life}.*")):
            with contextlib.suppress(OSError):
                file.unlink()

    def _file(self) -> Path:
        if self.latest is None or not self.latest.exists() or self.latest.stat().st_size > MAX_FILE:
            self._directory.mkdir(parents=True, exist_ok=True)
            name = f"{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}-{os.getpid()}.log"
            self.latest = self._directory / name
            self.mine.add(self.latest)
        return self.latest


class _Files:
    """The files that there are, and the shippers of them."""

    def __init__(self, store: Store, prefix: str, log: _OwnLog) -> None:
        self._store = store
        self._prefix = prefix
        self._log = log
        self._shippers: dict[Path, LogShipper] = {}

    async def ship(self, *, all_ended: bool) -> None:
        """Ship what is due; of files that nothing is written to any more, everything.

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
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), SHIP_EVERY.total_seconds())
        last = stop.is_set()
        try:
            await files.ship(all_ended=last)
        except OSError as error:
            logger.warning("the agent's own log cannot be shipped: %s", error)


def _about_itself(record: logging.LogRecord, prefix: str) -> bool:
    """Whether it says that this log cannot be shipped: to log that in it would be a line for each try."""
    return record.name == __name__ or (record.name == logship.__name__ and any(prefix in str(each) for each in record.args or ()))
