"""A cluster that is validated and fails in the middle of it: what was found is told all the
same.
"""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from iris.client.client import AsyncIrisClient
from iris.client.operate.validation import CaseResult, validate
from iris.model.host.accelerators import tpu
from tests.builders import some
from tests.harness import Cluster, dev_server_cluster

KIND = tpu("v5litepod-8")
#: Where nobody listens, and nothing is tried again.
NOWHERE = "http://127.0.0.1:9/store"


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with dev_server_cluster() as cluster:
        yield cluster


async def validated(cluster: Cluster, **record: str) -> list[CaseResult]:
    users = AsyncIrisClient(cluster.client, cluster.users.record.model_copy(update=record))
    return [result async for result in validate(users, KIND, timedelta(minutes=1), print)]


@pytest.mark.long
@pytest.mark.parametrize(
    ("record", "why"),
    [
        ({"store": NOWHERE}, f"the store {NOWHERE} does not answer: Generic HTTP error"),
        (
            {"store": "gs:///no-bucket"},
            "the store gs:///no-bucket cannot be used: Generic URL error",
        ),
        ({"name": "another"}, "the control plane of cluster another has not started"),
    ],
    ids=["a store that does not answer", "a store that cannot be", "no control plane"],
)
async def test_a_case_whose_end_is_not_known_has_failed_and_is_the_last_one(
    cluster: Cluster, record: dict[str, str], why: str
) -> None:
    """A person gets the table, and a program its JSON, with what each case came to."""
    await cluster.join(offers=some(cpu=8, memory=16, device="tpu:v5litepod-8:8"))

    first, *others = await validated(cluster, **record)

    assert (first.name, first.passed) == ("simple", False)
    assert first.said.startswith(why)
    assert "\n" not in first.said
    assert [(each.passed, each.said) for each in others] == [
        (False, "not run: simple did not finish")
    ] * 2
