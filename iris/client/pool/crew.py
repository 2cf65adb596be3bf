"""Keeps the number of a pool's workers, which are tasks of jobs. Starts a job for workers that have
ended because they had no calls. Also prepares the first job.
"""

import asyncio
import contextlib
import secrets
import sys
import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple, Unpack

from iris.client.build.job import importable_from, make_job
from iris.client.build.options import JobOptions
from iris.client.client import AsyncIrisClient
from iris.client.functions import run
from iris.client.functions.call import library_files, python_file
from iris.client.functions.interpreter import for_pickles, is_bare, own_interpreter
from iris.client.jobs.client import JobsClient
from iris.client.jobs.submit.start import Submitted
from iris.client.pool.child import SCRIPT
from iris.client.pool.errors import PoolBroken
from iris.client.pool.messages import FILE, Mail, PoolFile
from iris.client.workspace.extra_files import ExtraFile
from iris.client.workspace.pack import pack
from iris.client.workspace.upload import upload
from iris.model import names
from iris.model.errors import InvalidValue, IrisError, NameTaken, NotFound, Unreachable
from iris.model.job import bundles
from iris.model.job.bundles import Bundle
from iris.model.job.spec import MAX_REPLICAS, JobSpec
from iris.model.states import ENDED, JobState
from iris.model.units import parse_duration
from iris.retrying import retry
from iris.storage.object_store import Store

#: How often a pool with waiting calls counts its workers. The pool notices the end of a job at
#: once, without counting.
COUNT_INTERVAL = timedelta(seconds=10)
#: The pause between two attempts to cancel a job while the service does not answer.
CANCEL_INTERVAL = timedelta(seconds=1)
#: The default limit on restarts of a worker that failed through its own fault. Workers in a later
#: job of the pool start to count anew.
_WORKER_RETRIES = 3
#: The default limit on restarts of a worker whose host was lost. It is high, because a pool lives
#: for days and loses many preemptible hosts.
_WORKER_PREEMPTIONS = 1000


class Crew:
    """The workers of one pool.

    Args:
        spec: the pool's first job. The names of later jobs are its name and a number.
        key: a text that no other pool has. It makes each submission of a job unique.
        broken: called with the error when the workers cannot run.
    """

    def __init__(
        self,
        jobs: JobsClient,
        spec: JobSpec,
        key: str,
        wanted: int,
        broken: Callable[[IrisError], None],
    ) -> None:
        self._jobs = jobs
        self._spec = spec
        self._key = key
        self.wanted = wanted
        self._broken = broken
        self._made = 0
        self._watched: dict[str, asyncio.Task[None]] = {}
        self._counting = asyncio.Lock()

    @property
    def jobs(self) -> list[str]:
        """The ids of the jobs that have not ended."""
        return list(self._watched)

    async def start(self) -> None:
        """Starts a job for all workers.

        Raises:
            Rejected: a live job has the name.
            InvalidValue: the workers demand more of their hosts than the scheduler can represent.
            Unreachable: the service does not answer.
        """
        await self._start(self.wanted)

    async def top_up(self) -> None:
        """Starts a job for the missing workers. Does nothing while no control plane answers."""
        async with self._counting:
            with contextlib.suppress(Unreachable):
                if (missing := self.wanted - await self.live()) > 0:
                    await self._start(missing)

    async def live(self) -> int:
        """Returns how many workers run, or wait for a host.

        Raises:
            Unreachable: no control plane answers.
        """
        count = 0
        for job in self.jobs:
            with contextlib.suppress(NotFound):
                count += sum(
                    task.state not in ENDED for task in (await self._jobs.status(job)).tasks
                )
        return count

    async def cancel(self, reason: str) -> None:
        """Cancels the jobs."""

        @retry(Unreachable, every=CANCEL_INTERVAL)
        async def cancel(job: str) -> None:
            with contextlib.suppress(NotFound):
                await self._jobs.cancel(job, reason)

        jobs = self.jobs
        for watching in self._watched.values():
            watching.cancel()
        self._watched.clear()
        await asyncio.gather(*(cancel(job) for job in jobs))

    async def _start(self, workers: int) -> None:
        while True:
            name = self._spec.name if self._made == 0 else f"{self._spec.name}-{self._made + 1}"
            spec = self._spec.model_copy(update={"name": name, "replicas": workers})
            try:  # once, also if the service accepts the job and then does not answer
                submitted = await self._jobs.submit_once(spec, key=f"{self._key}/{self._made}")
            except NameTaken:  # the user has chosen only the first name
                if self._made == 0:
                    raise
                self._made += 1
                continue
            self._made += 1
            return self._watch(submitted.job)

    def _watch(self, job: Submitted) -> None:
        self._watched[job.id] = asyncio.create_task(self._until_ended(job))

    async def _until_ended(self, job: Submitted) -> None:
        try:
            status = await self._jobs.wait(job.id, job.run_id)
        except IrisError as error:
            self._broken(PoolBroken(f"the workers of the pool are lost: {error}"))
            return
        except Exception as error:  # otherwise the calls would wait for ever
            self._broken(PoolBroken.of(error))
            return
        del self._watched[job.id]
        if status.state is not JobState.SUCCEEDED:  # success: they had no calls, or retired
            self._broken(
                PoolBroken(
                    f"the workers of the pool have ended: {job.id} {status.state}: {status.reason}"
                )
            )


class Prepared(NamedTuple):
    """A pool whose workers are not started yet."""

    #: The specification of a job that runs the workers. The name and the number of tasks are those
    #: of the pool's first job.
    spec: JobSpec
    queue: str
    mail: Mail
    #: The workspace of the workers; None if they get no workspace.
    root: Path | None


def check_workers(number: int) -> None:
    """Checks that a pool can have this number of workers.

    Raises:
        InvalidValue: the number is out of range.
    """
    if not isinstance(number, int) or not 1 <= number <= MAX_REPLICAS:
        raise InvalidValue(
            "num_workers", number, "is out of range", f"ask for 1 to {MAX_REPLICAS:,} workers"
        )


async def prepare(
    client: AsyncIrisClient,
    num_workers: int,
    idle_timeout: timedelta | float | str,
    workspace: Path | str | bool | None,
    **options: Unpack[JobOptions],
) -> Prepared:
    """Checks the options, and uploads the workspace and the files of the workers.

    Raises:
        Rejected: an option is invalid.
        IrisError: the store does not accept the files.
    """
    check_workers(num_workers)
    if {"replicas", "gang_by", "array", "params"} & options.keys():
        remedy = "leave replicas, gang_by, array and params out"
        raise InvalidValue("replicas", num_workers, "is set by the pool", remedy)
    idle = (
        idle_timeout
        if isinstance(idle_timeout, timedelta)
        else parse_duration(idle_timeout, "idle_timeout")
    )
    if idle <= timedelta():
        raise InvalidValue(
            "idle_timeout", idle_timeout, "is not a time to wait", "give 1 second or more"
        )
    token, key = secrets.token_hex(4), secrets.token_hex(32)
    within = await client.enclosing_job()
    if "name" not in options:
        options["name"] = f"pool-{token}"
    # A later attempt of the enclosing job makes another pool while the workers of this one live.
    elif within is not None:
        options["name"] += f"-{token}"
    options.setdefault("retries", _WORKER_RETRIES)
    options.setdefault("max_retries_preemption", _WORKER_PREEMPTIONS)
    spec = await make_job(client.record, [names.POOL_WORKER], (), {}, workspace, within, **options)
    if spec.replicas > 1:
        raise InvalidValue(
            "tpu",
            options.get("resources"),
            "has several hosts",
            "give the workers a slice of one host each",
        )
    root = await importable_from(workspace, within, **options)
    spec = await asyncio.to_thread(for_pickles, spec, root, options.get("environment"))
    queue, store = names.pool_queue(client.record.name, spec.id, token), Store(client.record.store)
    file = PoolFile(
        queue=queue, key=key, python=sys.version_info[:2], idle_timeout=idle.total_seconds()
    )
    call = await _upload(
        store, file, own_interpreter(client.record) if is_bare(spec, root) else None
    )
    spec = spec.model_copy(update={"call": call, "replicas": num_workers})
    return Prepared(spec, queue, Mail(store, key), root)


async def _upload(store: Store, pool: PoolFile, python: str | None) -> Bundle:
    with tempfile.TemporaryDirectory(prefix="iris-pool-") as directory:
        packed = await asyncio.to_thread(pack, None, worker_files(pool, Path(directory), python))
    with packed:
        return await upload(store, packed)


def worker_files(pool: PoolFile, directory: Path, python: str | None = None) -> list[ExtraFile]:
    """Returns the files that each worker gets in the directory of its call.

    Args:
        directory: a directory for the files about the pool that this function writes.
        python: the path of the interpreter on the hosts, as in `pack_call`; None for that of the
            job's environment.
    """
    (directory / FILE).write_text(pool.model_dump_json())
    here = Path(__file__).parent
    sources = {
        FILE: directory / FILE,
        bundles.SCRIPT: here / "launch.py",
        "one_call.py": Path(run.__file__),
    }
    sources |= {name: here / name for name in (SCRIPT, "frames.py")}
    return [
        *(ExtraFile(source, name) for name, source in sources.items()),
        *library_files(),
        *python_file(python, directory),
    ]
