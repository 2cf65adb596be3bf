"""Batches of a pool on a Temporal service, without a cluster: what becomes of calls when the
service or the store fails.
"""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from temporalio import activity
from temporalio.client import (
    ActivityHandle,
    Client,
    Interceptor,
    OutboundInterceptor,
    StartActivityInput,
)
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from iris.client.connect.clusters import ClusterRecord
from iris.client.connect.connection import data_converter
from iris.client.connect.encryption import PayloadKeys
from iris.client.connect.rpc import Connection
from iris.client.pool.batches import Call
from iris.client.pool.child import Child
from iris.client.pool.crew import worker_files
from iris.client.pool.errors import CallLost
from iris.client.pool.exchange import Exchange
from iris.client.pool.messages import INLINE, RUN_CALLS, Address, Mail, PoolFile
from iris.client.pool.worker import PoolWorker
from iris.model import store_paths
from iris.storage.object_store import Store
from iris.worker_agents.local.temporal_server import temporal_binary

pytestmark = pytest.mark.long

PATIENCE = 60
POOL = PoolFile(
    queue="local/pool/ada/sweep-1", key="aa" * 32, python=sys.version_info[:2], idle_timeout=600
)

CALL, ANSWER = Address(POOL.queue, 1, "call"), Address(POOL.queue, 1, "answer")


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with await WorkflowEnvironment.start_local(
        dev_server_existing_path=temporal_binary()
    ) as server:
        yield server.client


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store((tmp_path / "store").as_uri(), create=True)


def exchange(client: Client, store: Store) -> Exchange:
    address = client.service_client.config.target_host
    connection = Connection(client, ClusterRecord(name="local", address=address, store=store.url))
    return Exchange(connection, POOL.queue, Mail(store, POOL.key))


def call(function: Any, *args: Any) -> Call:
    made = Call(cloudpickle.dumps(function), cloudpickle.dumps((args, {})), "the function")
    made.start()
    return made


class _Deaf(ActivityHandle[Any]):
    """The connection is lost on which the result would come."""

    async def result(self, **_: Any) -> Any:
        return await asyncio.Event().wait()


class _Started(Interceptor):
    """The batches that a client has started.

    Args:
        client: without this interceptor.
        unheard: it hears nothing more of them.
    """

    def __init__(self, client: Client, *, unheard: bool = False) -> None:
        self.client = client
        self.unheard = unheard
        self.started: asyncio.Queue[ActivityHandle[Any]] = asyncio.Queue()

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        here = self

        class Outbound(OutboundInterceptor):
            async def start_activity(self, input: StartActivityInput) -> ActivityHandle[Any]:
                started = await super().start_activity(input)
                here.started.put_nowait(started)
                return _Deaf(here.client, started.id) if here.unheard else started

        return Outbound(next)


class _Breaking(Interceptor):
    """Connections break during the first calls that start a batch."""

    def __init__(self, times: int) -> None:
        self.left = times

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        here = self

        class Outbound(OutboundInterceptor):
            async def start_activity(self, input: StartActivityInput) -> ActivityHandle[Any]:
                if here.left:
                    here.left -= 1
                    raise RPCError("transport error", RPCStatusCode.UNKNOWN, b"")
                return await super().start_activity(input)

        return Outbound(next)


@contextlib.asynccontextmanager
async def a_worker(client: Client, store: Store, directory: Path) -> AsyncIterator[None]:
    """A worker of the pool, with the process for its calls."""
    for source, name in worker_files(POOL, directory):
        there = directory / "call" / (name or "")
        there.parent.mkdir(parents=True, exist_ok=True)
        there.write_bytes(source.read_bytes())
    child = Child(sys.executable, directory / "call")
    worker = PoolWorker(POOL, Mail(store, POOL.key), child)
    try:
        async with Worker(
            client,
            task_queue=POOL.queue,
            activities=[worker.run_calls],
            max_concurrent_activities=1,
        ):
            yield
    finally:
        await child.close()


async def test_a_cluster_with_payload_keys_has_pools_whose_workers_have_none(
    client: Client, store: Store, tmp_path: Path
) -> None:
    """A job does not get the keys. The pool's own key encrypts its messages, small ones and large
    ones.
    """
    config = client.config()
    config["data_converter"] = data_converter(PayloadKeys("a file", {"first": bytes(32)}))
    async with a_worker(client, store, tmp_path):
        pool = exchange(Client(**config), store)
        for size in (10, 5_000_000):
            sent = call(bytes.upper, b"a" * size)
            await pool.run([sent])
            assert sent.future.result() == b"A" * size
    assert await store.sizes(store_paths.pool_files(POOL.queue)) == [], (
        "large messages are left in the store"
    )


async def test_batches_with_large_arguments_that_are_sent_at_the_same_time_get_their_own_results(
    client: Client, store: Store, tmp_path: Path
) -> None:
    """They wait for the store before they are sent, and others are numbered meanwhile."""
    pool, calls = (
        exchange(client, store),
        [call(bytes.__len__, bytes(INLINE + number)) for number in range(8)],
    )
    async with a_worker(client, store, tmp_path):
        await asyncio.wait_for(asyncio.gather(*(pool.run([each]) for each in calls)), PATIENCE)

    assert [each.future.result() for each in calls] == [INLINE + number for number in range(8)]


async def test_a_result_that_the_store_has_lost_is_a_final_error(
    client: Client, store: Store
) -> None:
    """To read it again for ever would hang the program."""

    @activity.defn(name=RUN_CALLS)
    async def stored_and_lost(message: bytes) -> bytes:
        reply = await Mail(store, POOL.key).send(ANSWER, [bytes(INLINE)])
        await store.delete([ANSWER.path])
        return reply

    async with Worker(client, task_queue=POOL.queue, activities=[stored_and_lost]):
        with pytest.raises(
            CallLost,
            match=r"the function was run, but its result is lost: the store file.*/1-answer; keep",
        ):
            await asyncio.wait_for(exchange(client, store).run([call(abs, 1)]), PATIENCE)


async def test_arguments_that_the_store_has_lost_are_a_final_error(
    client: Client, store: Store, tmp_path: Path
) -> None:
    """No other worker finds them either."""
    watch = _Started(client)
    pool = exchange(Client(**{**client.config(), "interceptors": [watch]}), store)
    running = asyncio.create_task(pool.run([call(len, bytes(INLINE))]))
    await watch.started.get()
    await store.delete([CALL.path])
    async with a_worker(client, store, tmp_path):
        with pytest.raises(
            CallLost, match=r"did not run the call: the store file.* no longer has .*/1-call; keep"
        ):
            await asyncio.wait_for(running, PATIENCE)


async def test_a_store_that_refuses_large_arguments_ends_their_calls(
    client: Client, store: Store, tmp_path: Path
) -> None:
    """The request was repeated for ever, and the map hung without a word."""
    (tmp_path / "store" / "pools").write_text("a file where a directory has to be")

    with pytest.raises(
        CallLost,
        match=r"the function are not sent: the store file:.* refuses the request: .*; correct controller",
    ):
        await asyncio.wait_for(exchange(client, store).run([call(len, bytes(INLINE))]), PATIENCE)


async def test_a_store_that_refuses_a_large_result_ends_its_call(
    client: Client, store: Store, tmp_path: Path
) -> None:
    """All workers have the same store, so another one is refused as well."""
    (tmp_path / "store" / "pools").write_text("a file where a directory has to be")
    async with a_worker(client, store, tmp_path):
        with pytest.raises(
            CallLost,
            match=(
                r"did not run the call: the store file:.* refuses a worker of the pool: .*; correct"
            ),
        ):
            await asyncio.wait_for(exchange(client, store).run([call(bytes, INLINE)]), PATIENCE)


async def test_a_service_that_refuses_a_batch_ends_its_calls(client: Client, store: Store) -> None:
    """Also with an error that nobody expects."""
    config = client.config()
    config["namespace"] = "nowhere"

    with pytest.raises(
        CallLost, match=r"could not send the function or read its result: RPCError: .*nowhere"
    ):
        await asyncio.wait_for(exchange(Client(**config), store).run([call(abs, 1)]), PATIENCE)


async def test_a_call_that_is_sent_again_warns_once_of_the_reason(
    client: Client, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """There is no limit, so a service that never accepts the call would hang the program without a
    word.
    """
    config = client.config()
    config["interceptors"] = [breaking := _Breaking(times=2)]

    await exchange(Client(**config), store).retire(1)

    assert breaking.left == 0
    warnings = [each.getMessage() for each in caplog.records if each.name.startswith("iris.")]
    assert len(warnings) == 1
    assert warnings[0].endswith("transport error")


async def test_a_batch_that_has_ended_unheard_does_not_stop_the_end_of_its_pool(
    client: Client, store: Store
) -> None:
    """Who presses Ctrl-C right after a restart of the service gets the terminal back, and no error
    of the service.
    """
    watch = _Started(client, unheard=True)
    pool = exchange(Client(**{**client.config(), "interceptors": [watch]}), store)
    running = asyncio.create_task(pool.run([call(abs, 1)]))
    await (await watch.started.get()).terminate()

    await asyncio.wait_for(pool.drop(), PATIENCE)
    assert not running.done()
    running.cancel()
