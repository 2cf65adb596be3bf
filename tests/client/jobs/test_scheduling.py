"""Operators talk to the scheduler: what they name has to be there, and so has the scheduler."""

from collections.abc import AsyncIterator

import pytest

from iris.client.client import AsyncIrisClient
from iris.model.errors import NotFound, Rejected, Unreachable
from tests.harness import Cluster, time_skipping_cluster


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with time_skipping_cluster() as cluster:
        yield cluster


@pytest.mark.parametrize("act", ["cordon", "drain", "uncordon"])
async def test_a_host_that_is_not_there_is_answered_with_similar_ones(
    cluster: Cluster, act: str
) -> None:
    """Nobody knows the names of all hosts by heart."""
    await cluster.join("tpu-one")
    with pytest.raises(NotFound, match=r"there is no host tpu-own; did you mean tpu-one\?"):
        await getattr(cluster.users.hosts, act)("tpu-own")
    with pytest.raises(NotFound, match="there is no host xyz; `iris host list` lists them"):
        await getattr(cluster.users.hosts, act)("xyz")
    await getattr(cluster.users.hosts, act)("tpu-one")


async def test_a_scale_group_that_no_host_has_is_answered_with_those_there_are(
    cluster: Cluster,
) -> None:
    """To pause it would do nothing, and look as if it did; to resume what is not paused too."""
    await cluster.join("h1", attributes={"scale-group": "cpus"})
    with pytest.raises(NotFound, match="there is no scale group gpus; there are: cpus"):
        await cluster.users.cluster.pause(group="gpus")
    with pytest.raises(Rejected, match="scale group cpus is not paused"):
        await cluster.users.cluster.resume("cpus")


async def test_a_cluster_without_a_scheduler_is_said_not_to_have_started(cluster: Cluster) -> None:
    """An operator may be quicker than the first control plane; that is no error of theirs."""
    early = AsyncIrisClient(cluster.client, cluster.users.record.model_copy(update={"name": "new"}))
    for asked in (early.cluster.pause(), early.hosts.cordon("h1"), early.hosts.list()):
        with pytest.raises(Unreachable, match="the control plane of cluster new has not started"):
            await asked
