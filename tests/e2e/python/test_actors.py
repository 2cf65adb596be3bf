"""Endpoints and actors: objects in the tasks of a job that other programs find by name and call."""

import asyncio
import contextlib
import socket
import sys
import threading
from collections.abc import Iterator

import pytest

import iris
from iris.client.actors.server import MOST_UNPROVED
from iris.client.actors.wire import HANDSHAKE_TIMEOUT
from iris.client.functions.result import RemoteTraceback
from iris.model.states import JobState
from tests.e2e.cluster import Cluster, a_cluster, eventually

pytestmark = pytest.mark.long

#: Each task has an actor. That of a second attempt says so.
SERVER = """
import os, sys, threading, time
import iris

class Counter:
    def __init__(self):
        self.number, self.inside = 0, 0

    def add(self, by=1):
        self.number += by
        return self.number

    def who(self):
        return int(os.environ["IRIS_TASK_INDEX"]), int(os.environ["IRIS_ATTEMPT"])

    def fails(self):
        raise KeyError("nothing here")

    def overlaps(self):
        self.inside += 1
        time.sleep(0.05)
        self.inside -= 1
        return self.inside

    def sleep(self, seconds):
        time.sleep(seconds)

    def exits(self, text):
        sys.exit(text)

    def threads(self):
        return threading.active_count()

    def _hidden(self):
        return "secret"

    def end(self):
        os._exit(3)

with iris.ActorServer() as server:
    server.register("counter", Counter(), {"kind": "test"})
    server.serve()
"""
#: A program of the same job that calls them: it needs no address.
CALLER = """
import iris
pool = iris.ActorPool(iris.context().client, "counter", job="actors")
print(sorted(result.value for result in pool.broadcast().who().wait_all()), flush=True)
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with a_cluster("--cpu", "4") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def client(cluster: Cluster) -> Iterator[iris.IrisClient]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IRIS_STATE_DIR", str(cluster.home))
        patch.setenv("IRIS_USER", "ada")
        with iris.IrisClient(cluster.name) as client:
            yield client


def serve(client: iris.IrisClient, name: str, tasks: int = 1) -> "iris.Job[None]":
    """A job whose tasks have actors; it is ready."""
    job = client.submit(
        sys.executable,
        "-c",
        SERVER,
        name=name,
        replicas=tasks,
        retries=5,
        workspace=False,
        resources=iris.Resources(cpu=0.2),
    )
    eventually(lambda: len(client.endpoints("counter", job=name)) == tasks)
    return job


def test_programs_call_the_actors_of_a_job_by_name(
    client: iris.IrisClient, cluster: Cluster
) -> None:
    """One of them, each in turn, or all; exceptions arrive with their type."""
    job = serve(client, "actors", tasks=2)
    one, pool = (
        iris.ActorClient(client, "counter", job="actors"),
        iris.ActorPool(client, "counter", job="actors"),
    )

    assert [one.add(), one.add(by=5)] == [1, 6]
    assert sorted(pool.call().who() for _ in range(4)) == [(0, 1), (0, 1), (1, 1), (1, 1)]
    found = pool.broadcast().add(10).wait_all()
    assert [(each.endpoint.task, each.success, each.value) for each in found] == [
        (0, True, 16),
        (1, True, 10),
    ]
    assert [(each.success, repr(each.value)) for each in pool.broadcast().fails().wait_all()] == [
        (False, "KeyError('nothing here')")
    ] * 2
    with pytest.raises(KeyError, match="nothing here") as raised:
        one.fails()
    assert isinstance(raised.value.__cause__, RemoteTraceback)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        one.nothing()
    threads = [threading.Thread(target=one.overlaps) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert one.overlaps() == 0, "two calls of an actor ran at the same time"
    with pytest.raises(TimeoutError, match=r"takes longer than 0\.1 s"):
        iris.ActorClient(client, "counter", job="actors", call_timeout=0.1).sleep(1)

    listed = cluster.iris("endpoints", "actors", "--prefix", "count", "--json").json
    assert [(each["name"], each["task"], each["metadata"]["kind"]) for each in listed] == [
        ("counter", task, "test") for task in (0, 1)
    ]
    inside = client.submit(
        sys.executable, "-c", CALLER, workspace=False, resources=iris.Resources(cpu=0.2)
    )
    assert inside.wait(60).state is JobState.SUCCEEDED
    assert [str(line) for line in inside.logs()] == ["[(0, 1), (1, 1)]"]
    job.cancel()
    job.wait(60)
    assert client.endpoints(job="actors") == []


def test_calls_go_on_with_the_next_attempt_of_an_actors_task(client: iris.IrisClient) -> None:
    """With another address and a new state. A call that was under way is not repeated without its
    caller's knowledge.
    """
    job = serve(client, "retried")
    actor = iris.ActorClient(client, "counter", job="retried")
    assert actor.add() == 1
    with pytest.raises(iris.CallInterrupted):
        actor.end()

    assert (actor.who(), actor.add()) == ((0, 2), 1)
    job.cancel()

    def called() -> None:
        with contextlib.suppress(iris.CallInterrupted):  # its process ended during the call
            iris.ActorClient(client, "counter", job="retried", find_timeout=0).add()

    with pytest.raises(iris.ActorUnavailable, match=r"iris endpoints JOB"):
        eventually(called)


async def test_an_asynchronous_program_calls_actors_too(client: iris.IrisClient) -> None:
    """Many calls at once without a thread for each; a cancelled one leaves its answer to no
    other.
    """
    job = serve(client, "awaited", tasks=2)
    asynchronous = await iris.AsyncIrisClient.connect(client.cluster.name)
    async with (
        iris.AsyncActorClient(asynchronous, "counter", job="awaited") as one,
        iris.AsyncActorPool(asynchronous, "counter", job="awaited") as pool,
    ):
        assert sorted(await asyncio.gather(*(one.add() for _ in range(50)))) == list(range(1, 51))
        assert sorted([await pool.call().who() for _ in range(4)]) == [
            (0, 1),
            (0, 1),
            (1, 1),
            (1, 1),
        ]
        found = await pool.broadcast().fails()
        assert [(each.endpoint.task, each.success, repr(each.value)) for each in found] == [
            (0, False, "KeyError('nothing here')"),
            (1, False, "KeyError('nothing here')"),
        ]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(one.sleep(0.5), 0.1)
        assert await one.who() == (0, 1)
        with pytest.raises(RuntimeError, match="ended with SystemExit: enough"):
            await one.exits("enough")
    with pytest.raises(iris.IrisError, match="was closed"):
        await one.who()
    job.cancel()


def test_strangers_can_neither_make_an_actor_unpickle_something_nor_take_its_threads(
    client: iris.IrisClient,
) -> None:
    """Anybody can connect to a port of a host, and say nothing."""
    job = serve(client, "guarded")
    address, port = client.endpoints("counter", job="guarded")[0].address.rsplit(":", 1)
    with contextlib.ExitStack() as strangers:
        guess = strangers.enter_context(socket.create_connection((address, int(port))))
        guess.sendall(bytes(64))
        silent = [
            strangers.enter_context(socket.create_connection((address, int(port))))
            for _ in range(MOST_UNPROVED + 10)
        ]

        guess.settimeout(HANDSHAKE_TIMEOUT / 2)
        with contextlib.suppress(ConnectionResetError):  # it is closed at once
            while guess.recv(1000):
                pass
        assert silent[0].recv(1000) == b"", "the oldest one is closed for later ones"
        with iris.ActorClient(client, "counter", job="guarded") as actor:
            assert actor.who() == (0, 1)
            assert actor.threads() <= MOST_UNPROVED + 20
    job.cancel()
