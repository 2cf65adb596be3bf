"""Uploads the files of planned jobs to the store."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

from iris.client.build.draft import PlannedJob
from iris.client.build.files import JobFiles
from iris.client.connect.clusters import ClusterRecord
from iris.client.workspace.files import commit_of
from iris.client.workspace.pack import pack
from iris.client.workspace.projects import build_variables
from iris.client.workspace.upload import upload, upload_table
from iris.model.job.bundles import Bundle
from iris.model.job.spec import JobSpec
from iris.storage.object_store import Store

#: A function that packs and uploads the files of a job.
Upload = Callable[[Store, JobFiles], Awaitable[Bundle]]


async def upload_silently(store: Store, files: JobFiles) -> Bundle:
    """Packs and uploads the files of a job, and reports nothing."""
    with await asyncio.to_thread(pack, files.directory, files.extra) as packed:
        return await upload(store, packed)


async def send(
    cluster: ClusterRecord, jobs: Iterable[PlannedJob], upload_files: Upload = upload_silently
) -> list[JobSpec]:
    """Uploads the files of the jobs, and returns the jobs with them. Files that several jobs share
    are uploaded once.

    Raises:
        IrisError: packing or uploading failed, or a project cannot be installed from its files.
    """
    sender = _Sender(cluster, upload_files)
    return [await sender.send(each) for each in jobs]


class _Sender:
    """Sends the files of several jobs, one job after the other. Sends shared files only once."""

    def __init__(self, cluster: ClusterRecord, upload_files: Upload) -> None:
        self._store = Store(cluster.store)
        self._shares_files = cluster.supervisor is not None
        self._upload_files = upload_files
        self._bundles: dict[Any, Bundle] = {}
        self._build_envs: dict[Any, dict[str, str]] = {}
        self._commits: dict[Path | None, str] = {}

    async def send(self, job: PlannedJob) -> JobSpec:
        spec, files, table = job
        changes: dict[str, Any] = {}
        if table is not None and spec.array is not None:
            sent = await upload_table(self._store, table)
            changes["array"] = spec.array.model_copy(update={"table": sent})
        if files.are_sent:
            build_env = await self._build_env(spec, files)
            changes["environment"] = spec.environment.model_copy(update={"build_env": build_env})
            changes["bundle"] = await self._bundle(files)
            changes["commit"] = await self._commit(files.directory)
        return spec.model_copy(update=changes)

    async def _build_env(self, spec: JobSpec, files: JobFiles) -> dict[str, str]:
        """Returns the variables for the build of the project, after a check that hosts get all that
        it needs.
        """
        if files.project is None or not spec.environment.sync:
            return {}
        key = (files.project, spec.image, tuple(spec.env.items()))
        if key not in self._build_envs:
            shares_files = self._shares_files and spec.image is None
            self._build_envs[key] = await asyncio.to_thread(
                build_variables, files.project, spec.env, shares_files=shares_files
            )
        return self._build_envs[key]

    async def _bundle(self, files: JobFiles) -> Bundle:
        key = (files.directory, files.extra)
        if key not in self._bundles:
            self._bundles[key] = await self._upload_files(self._store, files)
        return self._bundles[key]

    async def _commit(self, directory: Path | None) -> str:
        """Returns the git commit of the directory's files."""
        if directory is None:
            return ""
        if directory not in self._commits:
            self._commits[directory] = await asyncio.to_thread(commit_of, directory)
        return self._commits[directory]
