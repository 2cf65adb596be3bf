"""Which checkpoint a new job starts from."""

from pathlib import Path

from temporalio.testing import WorkflowEnvironment

from iris.client.connect.clusters import ClusterRecord
from iris.client.connect.connection import connect
from iris.client.connect.rpc import Connection
from iris.client.jobs.submit.checkpoints import with_source
from iris.model import store_paths
from iris.model.checkpoint.sources import CheckpointSource
from iris.model.job.spec import JobSpec
from iris.storage.object_store import Store
from iris.worker_agents.control_plane.search_attributes import register_search_attributes
from iris.worker_agents.local.temporal_server import temporal_binary


async def test_the_run_of_a_job_that_the_service_has_forgotten_is_not_the_folder_of_a_child_job(
    tmp_path: Path,
) -> None:
    """Both are in the job's folder, and the names of children sort after those of runs."""
    store, early, late = (
        Store((tmp_path / "store").as_uri(), create=True),
        "0198c0de-aaaa",
        "0198c0de-bbbb",
    )
    for job, run in (("ada/sweep", early), ("ada/sweep", late), ("ada/sweep/trial", late)):
        await store.put(f"{store_paths.task_checkpoints(job, run, 0)}/1/0000000001.json", b"{}")
    spec = JobSpec(user="ada", name="next", command=("true",))
    async with await WorkflowEnvironment.start_local(
        dev_server_existing_path=temporal_binary()
    ) as server:
        address = server.client.service_client.config.target_host
        client = await connect(address, "default")
        await register_search_attributes(client)
        connection = Connection(
            client, ClusterRecord(name="local", address=address, store=store.url)
        )

        found = await with_source(connection, spec, CheckpointSource(job="ada/sweep"))

    assert found.from_checkpoint is not None
    assert found.from_checkpoint.folder == store_paths.job_checkpoints("ada/sweep", late)
