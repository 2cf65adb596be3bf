"""What a job that was submitted before needs of the store when it runs again."""

import os
import time
from pathlib import Path

import pytest

from iris.client.jobs.submit.bundles import keep_bundles
from iris.model import store_paths
from iris.model.errors import NotFound
from iris.model.job.arrays import Array
from iris.model.job.bundles import Bundle
from iris.storage.object_store import Store
from tests.builders import a_spec

FILES, CALL, TABLE = (Bundle(sha256=digit * 64) for digit in "abc")
SPEC = a_spec(bundle=FILES, call=CALL, array=Array(indices="0", size=1, table=TABLE))


async def a_store(directory: Path, *bundles: Bundle) -> Store:
    """A store with bundles that are four days old."""
    store, then = Store(f"file://{directory}", create=True), time.time() - 4 * 86_400
    for bundle in bundles:
        await store.put(store_paths.bundle(bundle.sha256), bundle.sha256.encode())
        os.utime(directory / store_paths.bundle(bundle.sha256), (then, then))
    return store


async def test_bundles_of_a_job_that_runs_again_become_young(tmp_path: Path) -> None:
    """`iris cluster gc` takes old bundles that no job needed when it looked; the new job may be
    younger than that.
    """
    store = await a_store(tmp_path, FILES, CALL, TABLE)
    await keep_bundles(store, SPEC)

    for bundle in (FILES, CALL, TABLE):
        path = store_paths.bundle(bundle.sha256)
        assert (tmp_path / path).stat().st_mtime > time.time() - 3600
        assert await store.get(path) == bundle.sha256.encode()


@pytest.mark.parametrize("missing", [FILES, CALL, TABLE], ids=["files", "function", "rows"])
async def test_a_job_whose_bundle_was_deleted_is_not_run_again(
    tmp_path: Path, missing: Bundle
) -> None:
    """Each of its tasks would fail, after it has waited for a host."""
    store = await a_store(tmp_path, *({FILES, CALL, TABLE} - {missing}))

    with pytest.raises(
        NotFound,
        match=f"bundle {missing.sha256[:12]} is not in the store .*; submit the job from its files",
    ):
        await keep_bundles(store, SPEC)
