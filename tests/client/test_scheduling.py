"""Operators talk to the scheduler: what they name has to be there, and so has the scheduler."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from iris.client.client import IrisClient
from iris.client.operate import scheduling
from iris.model.errors import NotFound, Rejected, Unreachable
from tests.harness import Cluster, time_skipping_cluster


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with time_skipping_cluster() as cluster:
        yield cluster


@pytest.mark.parametrize("act", [scheduling.cordon, scheduling.drain, scheduling.uncordon])
async def test_a_host_that_is_not_there_is_answered_with_similar_ones(
    cluster: Cluster, act: Callable[[IrisClient, str], Awaitable[None]]
) -> None:
    """Nobody knows the names of all hosts by heart."""
    await cluster.join("tpu-one")
    with pytest.raises(NotFound, match=r"there is no host tpu-own; did you mean tpu-one\?"):
        await act(cluster.users, "tpu-own")
    with pytest.raises(NotFound, match="there is no host xyz; `iris host list` lists them"):
        await act(cluster.users, "xyz")
    await act(cluster.users, "tpu-one")


async def test_a_scale_group_that_no_host_has_is_answered_with_those_there_are(cluster: Cluster) -> None:
    """To pause it would do nothing, and look as if it did; to resume what is not paused too."""
    await cluster.join("h1", attributes={"scale-group": "cpus"})
    with pytest.raises(NotFound, match="there is no scale group gpus; there are: cpus"):
        await scheduling.pause(cluster.users, group="gpus")
    with pytest.raises(Rejected, match="scale group cpus is not paused"):
        await scheduling.resume(cluster.users, "cpus")


async def test_a_cluster_without_a_scheduler_is_said_not_to_have_started(cluster: Cluster) -> None:
    """An operator may be quicker than the first control plane; that is no error of theirs."""
    early = IrisClient(cluster.client, cluster.users.cluster.model_copy(update={"name": "new"}))
    for asked in (scheduling.pause(early), scheduling.cordon(early, "h1"), early.hosts()):
        with pytest.raises(Unreachable, match="the control plane of cluster new has not started"):
            await asked
