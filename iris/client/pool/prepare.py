"""Prepares a pool: checks what it is asked to be, and uploads the files of its workers."""

import asyncio
import secrets
import sys
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple, Unpack

from iris.client.client import AsyncIrisClient
from iris.client.functions import run
from iris.client.functions.call import library_files, python_file
from iris.client.functions.interpreter import for_pickles, is_bare, own_interpreter
from iris.client.job_options import JobOptions
from iris.client.pool.child import SCRIPT
from iris.client.pool.messages import FILE, Mail, PoolFile
from iris.client.work import importable_from, make_job
from iris.client.workspace.extra_files import ExtraFile
from iris.client.workspace.pack import pack
from iris.client.workspace.upload import upload
from iris.model import call_files, names
from iris.model.bundles import Bundle
from iris.model.errors import InvalidValue
from iris.model.jobs import MAX_REPLICAS, JobSpec
from iris.model.units import parse_duration
from iris.storage.object_store import Store

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
        raise InvalidValue("num_workers", number, "is out of range", f"ask for 1 to {MAX_REPLICAS:,} workers")


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
    idle = idle_timeout if isinstance(idle_timeout, timedelta) else parse_duration(idle_timeout, "idle_timeout")
    if idle <= timedelta():
        raise InvalidValue("idle_timeout", idle_timeout, "is not a time to wait", "give 1 second or more")
    token, key = secrets.token_hex(4), secrets.token_hex(32)
    within = await client.enclosing_job()
    if "name" not in options:
        options["name"] = f"pool-{token}"
    elif within is not None:  # a later attempt of that job makes a new pool; the workers of the old one end when they are idle
        options["name"] += f"-{token}"
    options.setdefault("retries", _WORKER_RETRIES)
    options.setdefault("max_retries_preemption", _WORKER_PREEMPTIONS)
    spec = await make_job(client.record, ["pool-worker"], (), {}, workspace, within, **options)
    if spec.replicas > 1:
        raise InvalidValue("tpu", options.get("resources"), "has several hosts", "give the workers a slice of one host each")
    root = await importable_from(workspace, within, **options)
    spec = await asyncio.to_thread(for_pickles, spec, root, options.get("environment"))
    queue, store = names.pool_queue(client.record.name, spec.id, token), Store(client.record.store)
    file = PoolFile(queue=queue, key=key, python=sys.version_info[:2], idle_timeout=idle.total_seconds())
    call = await _upload(store, file, own_interpreter(client.record) if is_bare(spec, root) else None)
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
    sources = {FILE: directory / FILE, call_files.SCRIPT: here / "launch.py", "one_call.py": Path(run.__file__)}
    sources |= {name: here / name for name in (SCRIPT, "frames.py")}
    return [*(ExtraFile(source, name) for name, source in sources.items()), *library_files(), *python_file(python, directory)]
