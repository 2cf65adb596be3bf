"""Asking agents whether they are there, through a real service."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from temporalio import activity
from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from iris.activities.control.observe import poll_ages
from iris.activities.host.machine.ping import Ping, ask
from iris.autoscaling.liveness import POLL_LIMIT
from iris.client.connect.plugin import IrisPlugin
from iris.model import names
from tests.builders import a_host, a_silent


@activity.defn
async def another_activity() -> None:
    """All that an agent of an earlier version has, for this test."""


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    """A service with the agents of two hosts: one knows the question, and `earlier` is of a version
    that does not.
    """
    server = Path(sys.executable).with_name("temporal")
    present = Ping(a_host("h1", incarnation="second"))
    async with await WorkflowEnvironment.start_local(
        plugins=[IrisPlugin()], dev_server_existing_path=str(server)
    ) as env:
        queue, identity = names.host_queue("trial", "h1"), names.worker_identity("h1", "second")
        agent = Worker(env.client, task_queue=queue, identity=identity, activities=[present.ping])
        earlier = Worker(
            env.client,
            task_queue=names.host_queue("trial", "earlier"),
            activities=[another_activity],
        )
        async with agent, earlier:
            yield env.client


@pytest.mark.long
async def test_only_the_life_that_goes_on_answers(client: Client) -> None:
    """Its successor on the same queue is proof of its end; an agent that does not know the question
    is there all the same.
    """
    hosts = [
        a_silent("h1", "second"),
        a_silent("h1", "first"),
        a_silent("earlier"),
        a_silent("dead"),
    ]

    assert await ask(client, "trial", hosts) == {
        ("h1", "second"): True,
        ("h1", "first"): False,
        ("earlier", "first"): True,
        ("dead", "first"): False,
    }


async def test_the_service_tells_when_an_agent_began_its_last_poll(client: Client) -> None:
    """Where there are neither reports nor pings, this is what shows that an agent is there; its
    predecessor's polls do not.
    """
    hosts = [a_silent("h1", "second"), a_silent("h1", "first"), a_silent("dead")]
    await ask(client, "trial", hosts[:1])
    ages = await poll_ages(client, "trial", hosts)
    age = ages.pop(("h1", "second"))

    assert age is not None
    assert age < POLL_LIMIT.total_seconds()
    assert ages == {("h1", "first"): None, ("dead", "first"): None}
