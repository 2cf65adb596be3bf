"""The client that blocks has what the asynchronous one has: decision 66 writes it by hand, so a
test compares both.
"""

import inspect
from typing import Any

import pytest

from iris.client.blocking.client import IrisClient
from iris.client.blocking.job import Job
from iris.client.blocking.operations import Autoscaler, Cluster, Hosts, Schedules, Slices
from iris.client.client import AsyncIrisClient
from iris.client.cluster import ClusterClient
from iris.client.fleet.autoscaler import AutoscalerClient
from iris.client.fleet.hosts import HostsClient
from iris.client.fleet.slices import SlicesClient
from iris.client.jobs.handle import AsyncJob
from iris.client.schedules.client import SchedulesClient
from iris.config import load_config, make_local_config
from iris.model.errors import InvalidValue

#: What the command line needs of its own operations, and no program does.
INTERNAL = {
    HostsClient: {"polls"},
    SlicesClient: {"delete_all", "was_requested", "has_workflow"},
    AutoscalerClient: {"close_down"},
    ClusterClient: {"check_exists"},
    AsyncIrisClient: {"connect", "exec", "enclosing_job"},  # the constructor, `Job.exec`, `context`
}


@pytest.mark.parametrize(
    ("both", "blocking"),
    [
        (AsyncIrisClient, IrisClient),
        (AsyncJob, Job),
        (HostsClient, Hosts),
        (SlicesClient, Slices),
        (AutoscalerClient, Autoscaler),
        (ClusterClient, Cluster),
        (SchedulesClient, Schedules),
    ],
)
def test_every_operation_of_the_asynchronous_client_has_one_that_blocks(
    both: type, blocking: type
) -> None:
    """With the same arguments in the same order; `wait` can also print, and `jobs` lists."""
    wanted = {name for name in vars(both) if not name.startswith("_")} - INTERNAL.get(both, set())
    assert wanted - set(vars(blocking)) == set()
    for name in wanted & set(vars(blocking)):
        theirs, ours = vars(both)[name], vars(blocking)[name]
        if inspect.isfunction(theirs) and inspect.isfunction(ours):
            arguments = list(inspect.signature(theirs).parameters)
            assert list(inspect.signature(ours).parameters)[: len(arguments)] == arguments, name


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"tpu": "v5litepod-17"}, r"tpu: 'v5litepod-17' is not a TPU variant"),
        (
            {
                "tpu": "v5litepod-4",
                "config": make_local_config(load_config("platform: {local: {}}")),
            },
            "add a scale group to the",
        ),
    ],
)
def test_a_local_cluster_of_a_wrong_shape_is_not_started(
    given: dict[str, Any], problem: str
) -> None:
    """Nothing has to be taken back."""
    with pytest.raises(InvalidValue, match=problem):
        IrisClient.local(**given)
