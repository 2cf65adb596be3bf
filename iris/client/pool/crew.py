"""Keeps a pool's workers: the jobs whose tasks they are. Replaces those that have ended for want of
calls.
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
from iris.client.pool.child import SCRIPT
from iris.client.pool.errors import PoolBroken
from iris.client.pool.messages import FILE, Mail, PoolFile
from iris.client.views import Submitted
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

#: How often a pool with waiting calls counts its workers. The end of a job is noticed at once.
COUNT_INTERVAL = timedelta(seconds=10)
SUBMIT_INTERVAL = timedelta(seconds=1)


class Crew:
    """The workers of one pool.

    Args:
        spec: the pool's first job; later ones have a number after its name.
        key: of this pool and no other one.
        broken: called when the workers cannot run.
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
        """Starts a job for the workers that are missing. Does nothing while no control plane
        answers.
        """
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

        @retry(Unreachable, every=SUBMIT_INTERVAL)
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
            try:  # once, also if the service does not answer after it has accepted the job
                submitted = await self._jobs.submit_once(spec, key=f"{self._key}/{self._made}")
            except NameTaken:  # the user has chosen the first name only
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
        except Exception as error:  # whatever it is, the calls would wait for ever
            self._broken(PoolBroken.of(error))
            return
        del self._watched[job.id]
        if status.state is not JobState.SUCCEEDED:  # else they had no calls, or were too many
            self._broken(
                PoolBroken(
                    f"the workers of the pool have ended: {job.id} {status.state}: {status.reason}"
                )
            )


#: How often a worker that fails by itself is started again, in each of the pool's jobs.
_WORKER_RETRIES = 3
#: As hosts of preemptible slices are lost over the days of a pool.
_WORKER_PREEMPTIONS = 1000


class Prepared(NamedTuple):
    """A pool without workers."""

    #: The job of the workers; its name and the number of its tasks are those of the first one.
    spec: JobSpec
    queue: str
    mail: Mail
    #: The workspace that the workers get; None: they get none.
    root: Path | None


def check_workers(number: int) -> None:
    """Raises:
    InvalidValue: a pool cannot have so many workers.
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
        raise InvalidValue("replicas", num_workers, "is the number of workers", remedy)
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
    elif (
        within is not None
        # a later attempt of that job makes a new pool; the workers of the old one end when they are
        # idle
    ):
        options["name"] += f"-{token}"
    options.setdefault("retries", _WORKER_RETRIES)
    options.setdefault("max_retries_preemption", _WORKER_PREEMPTIONS)
    spec = await make_job(client.record, ["pool-worker"], (), {}, workspace, within, **options)
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
    """Returns what each worker finds in the directory of its call.

    Args:
        directory: for the files about the pool.
        python: as for `pack_call`.
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
