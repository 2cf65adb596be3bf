"""Finds the bundles of a job, and keeps them in the store for a job that runs again."""

import tempfile
from datetime import UTC, datetime
from pathlib import Path

from iris.client.logs.follow import reading_from
from iris.client.workspace.upload import FRESH
from iris.model import store_paths
from iris.model.errors import NotFound
from iris.model.job.bundles import Bundle
from iris.model.job.spec import JobSpec
from iris.storage.object_store import Store


def bundles_of(spec: JobSpec) -> list[Bundle]:
    """Returns the bundles that the tasks of the job need."""
    table = None if spec.array is None else spec.array.table
    return [bundle for bundle in (spec.bundle, spec.call, table) if bundle is not None]


async def keep_bundles(store: Store, spec: JobSpec) -> None:
    """Writes old bundles of the job again, so that `iris cluster gc` keeps them for a job that is
    submitted now.

    Raises:
        NotFound: a bundle is not in the store any more.
        IrisError: the store does not answer.
    """
    for bundle in bundles_of(spec):
        name, title = store_paths.bundle(bundle.sha256), f"bundle {bundle.sha256[:12]}"
        with reading_from(store, title), tempfile.TemporaryDirectory(prefix="iris-") as directory:
            written = await store.modified(name)
            if written is not None and datetime.now(UTC) - written < FRESH:
                continue
            file = Path(directory) / "bundle.tar.gz"
            if written is None or not await store.get_file(name, file):
                remedy = "submit the job from its files again"
                raise NotFound(f"{title} is not in the store {store.url} any more; {remedy}")
            await store.put_file(name, file)
