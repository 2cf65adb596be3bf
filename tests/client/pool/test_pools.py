"""Pools of workers without a cluster: which calls travel together, what is sealed, and the process
that runs calls.
"""

import asyncio
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from iris.client.functions.result import NoResult, Raised, restore
from iris.client.functions.run import write_error, write_value
from iris.client.pool import frames
from iris.client.pool.batches import MOST, TARGET, Call, CallQueue, batch_size
from iris.client.pool.child import Child, Crashed
from iris.client.pool.crew import worker_files
from iris.client.pool.exchange import settle
from iris.client.pool.messages import INLINE, Address, Mail, MessageLost, PoolFile
from iris.model import store_paths
from iris.model.errors import Rejected
from iris.model.host.faults import error_line
from iris.model.job import bundles
from iris.storage.object_store import Store

KEY, OTHER_KEY = "aa" * 32, "bb" * 32
POOL = PoolFile(
    queue="local/pool/ada/sweep-1", key=KEY, python=sys.version_info[:2], idle_timeout=600
)


@given(
    st.lists(st.tuples(st.sampled_from([b"f", b"g"]), st.sampled_from([None, 1, 7])), max_size=60),
    st.data(),
)
def test_every_call_is_answered_once_and_in_order_whatever_comes_back_unrun(
    calls: list[Any], data: st.DataObject
) -> None:
    """A batch may end at any call: by a crash, its time, or the end of its worker. The rest is sent
    again, nothing else.
    """
    queue, answered = CallQueue(), []
    for number, (function, most) in enumerate(calls):
        queue.add(Call(function, b"", str(number), most))
    while batch := queue.take(senders=data.draw(st.integers(1, 8))):
        assert len({call.function for call in batch}) == 1
        run = data.draw(st.integers(0, len(batch)), "calls that have an answer")
        if run == 0:
            batch[0].crashes += 1
            run = batch[0].crashes // 2  # it ends its process once, and then it does not
        answered += batch[:run]
        if run:
            queue.took(batch[0].function, run, data.draw(st.floats(0, 10)))
        queue.put_back(batch[run:])

    assert [call.name for call in answered] == [str(number) for number in range(len(calls))]


@given(st.integers(1, 10**6), st.integers(1, 64), st.none() | st.floats(0, 1000))
def test_a_batch_leaves_calls_for_the_other_workers_and_takes_a_fraction_of_a_second(
    waiting: int, senders: int, seconds: float | None
) -> None:
    """Of long calls, one worker must not get two while another one is idle."""
    size = batch_size(waiting, senders, seconds)

    assert 1 <= size <= MOST
    assert size == 1 or (
        seconds is not None and size * seconds <= TARGET * 1.001 and (size - 1) * senders < waiting
    )


def test_a_call_that_has_ended_its_process_is_sent_alone() -> None:
    """It harms no other call again."""
    queue = CallQueue()
    crashed = Call(b"f", b"", "crashed", most=10, crashes=1)
    queue.put_back([crashed, Call(b"f", b"", "second", most=10), Call(b"f", b"", "third", most=10)])

    assert [[call.name for call in queue.take(1)] for _ in range(2)] == [
        ["crashed"],
        ["second", "third"],
    ]


def test_a_cancelled_call_is_not_sent() -> None:
    """As with other executors, a call can be cancelled until it is sent."""
    queue = CallQueue()
    cancelled = Call(b"f", b"", "cancelled")
    queue.add(cancelled)
    queue.add(Call(b"f", b"", "wanted"))
    assert cancelled.future.cancel()

    assert [call.name for call in queue.take(1)] == ["wanted"]


@given(st.lists(st.binary(max_size=40), max_size=6))
def test_joined_parts_are_split_again(parts: list[bytes]) -> None:
    """Also empty ones. What is incomplete is refused."""
    joined = frames.join(parts)
    assert frames.split(joined) == parts
    if joined:
        with pytest.raises(ValueError, match="ends within"):
            frames.split(joined[:-1])


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store((tmp_path / "store").as_uri(), create=True)


CALL = Address(POOL.queue, 1, "call")


@pytest.mark.parametrize("size", [10, INLINE + 1])
async def test_a_message_is_read_with_the_pools_key_only_and_as_itself_only(
    store: Store, size: int
) -> None:
    """Who can write to the queue or the store cannot make anybody unpickle something, also not by
    sending a message again.
    """
    mail, parts = Mail(store, KEY), [b"function", b"x" * size]
    message = await mail.send(CALL, parts)

    assert await mail.read(CALL, message) == parts
    with pytest.raises(Rejected, match="not sealed with the pool's key"):
        await Mail(store, OTHER_KEY).read(CALL, message)
    for other in (Address(POOL.queue, 2, "call"), Address(POOL.queue, 1, "answer")):
        with pytest.raises((Rejected, MessageLost)):
            await mail.read(other, message)
    with pytest.raises(Rejected):
        await mail.read(CALL, b"\0 too short")


async def test_neither_the_service_nor_the_store_sees_what_a_message_says(store: Store) -> None:
    """A pool needs no payload keys for that, which jobs do not get."""
    mail, secret = Mail(store, KEY), b"a secret argument " * 10_000
    assert secret[:17] not in await mail.send(CALL, [secret[:100]])
    assert len(await mail.send(CALL, [secret])) < 10
    assert secret[:17] not in (await store.get(CALL.path) or secret)


async def test_a_message_that_the_store_has_lost_is_told_with_its_name_and_a_remedy(
    store: Store,
) -> None:
    """It does not come back by waiting."""
    mail = Mail(store, KEY)
    message = await mail.send(CALL, [bytes(INLINE)])
    await store.delete([CALL.path])

    with pytest.raises(
        MessageLost, match=r"no longer has pools/local/pool/ada/sweep-1/1-call; .*lifecycle rules"
    ):
        await mail.read(CALL, message)


class _Exits:
    def __reduce__(self) -> Any:
        return sys.exit, ("while it is restored",)


def _result(value: object) -> bytes:
    out = io.BytesIO()
    write_value(out, value, "f", cloudpickle)
    return out.getvalue()


def _error(error: BaseException) -> bytes:
    out = io.BytesIO()
    write_error(out, error, cloudpickle)
    return out.getvalue()


@pytest.mark.parametrize(
    ("result", "error", "message"),
    [
        pytest.param(
            b"garbage", NoResult, "cannot be restored here: JSONDecodeError", id="garbage"
        ),
        pytest.param(b"", NoResult, "cannot be restored here", id="nothing"),
        pytest.param(
            _result(_Exits()), NoResult, "while it is restored", id="a value that ends the program"
        ),
        pytest.param(
            _error(StopIteration(3)),
            RuntimeError,
            "f raised StopIteration: 3",
            id="what asyncio cannot pass on",
        ),
    ],
)
async def test_a_call_ends_whatever_its_result_is(
    result: bytes, error: type[Exception], message: str
) -> None:
    """Somebody waits for its future, also in an asynchronous program."""
    call = Call(b"", b"", "f")
    call.future.set_running_or_notify_cancel()
    waiting = asyncio.wrap_future(call.future)
    settle(call, result)

    with pytest.raises(error, match=message):
        await asyncio.wait_for(waiting, 60)


async def test_a_large_message_goes_through_the_store_and_is_removed_from_it(store: Store) -> None:
    """Temporal limits what it takes, and a store is not emptied by itself."""
    mail = Mail(store, KEY)
    message = await mail.send(CALL, [bytes(INLINE)])

    assert len(message) < 10
    assert await store.objects(store_paths.pool_files(POOL.queue)) == [CALL.path]
    await mail.remove(CALL, message)
    assert await store.objects(store_paths.pool_files(POOL.queue)) == []


class Running:
    """A process for calls, in a directory such as a host makes of the pool's files."""

    def __init__(self, directory: Path) -> None:
        for source, name in worker_files(POOL, directory):
            there = directory / "call" / (name or "")
            there.parent.mkdir(parents=True, exist_ok=True)
            there.write_bytes(source.read_bytes())
        self.directory = directory / "call"
        self.child = Child(sys.executable, self.directory)
        self.stopped = asyncio.Event()

    async def answers(
        self, function: Any, *calls: tuple[Any, ...], into: list[Any] | None = None
    ) -> list[Any]:
        """What has become of the calls that were run."""
        found = [] if into is None else into
        batch = frames.join(
            [cloudpickle.dumps(function), *(cloudpickle.dumps((args, {})) for args in calls)]
        )
        async for each in self.child.run(batch, len(calls), self.stopped):
            found.append(restore(io.BytesIO(each), "call"))
        return found


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    made = Running(tmp_path)
    yield made
    await made.child.close()


async def test_calls_return_values_and_exceptions_of_one_process(running: Running) -> None:
    """What a call leaves in its process, such as a loaded model, the next one finds."""
    assert await running.answers(divmod, (7, 2), (9, 4)) == [(3, 1), (2, 1)]
    (first,), (second,) = await running.answers(os.getpid, ()), await running.answers(os.getpid, ())
    assert first == second != os.getpid()
    raised = (await running.answers(divmod, (1, 0)))[0]
    assert isinstance(raised, Raised)
    assert isinstance(raised.error, ZeroDivisionError)
    assert "executor.py" not in raised.traceback
    unpicklable = (await running.answers(threading.Lock, ()))[0]
    assert "a lock" in str(unpicklable.error)
    exits = (await running.answers(sys.exit, ("enough",)))[0]
    assert isinstance(exits.error, SystemExit)


async def _squared_later(number: int) -> int:
    await asyncio.sleep(0)
    return number * number


async def test_calls_of_a_coroutine_function_return_what_it_returns(running: Running) -> None:
    """Each call has an event loop of its own, so one cannot leave anything to the next."""
    assert await running.answers(_squared_later, (3,)) == [9]
    assert await running.answers(_squared_later, (4,)) == [16]


async def test_a_call_that_ends_unusually_says_so(running: Running) -> None:
    """It would otherwise count as one that has ended its process, and be run three times."""

    def ends_with(kind: type[BaseException]) -> None:
        raise kind("enough")

    class Unprintable(Exception):
        def __str__(self) -> str:
            raise ValueError("no text")

    found = await running.answers(
        ends_with, (asyncio.CancelledError,), (GeneratorExit,), (Unprintable,)
    )
    assert [str(each.error) for each in found[:2]] == [
        "the call ended with CancelledError: enough",
        "the call ended with GeneratorExit: enough",
    ]
    assert (found[2].text, "in ends_with" in found[2].traceback) == ("Unprintable", True)


async def test_a_result_that_is_too_large_is_an_error_of_its_call(running: Running) -> None:
    """Not of the whole batch, and not one that is tried again."""
    library = running.directory / "frames.py"
    library.write_text(library.read_text().replace("1024 * 1024 * 1024", "1000"))
    (small,), (large,) = await running.answers(bytes, (10,)), await running.answers(bytes, (1000,))

    assert small == bytes(10)
    assert "bytes; the limit is 1,000: return the path of a file" in str(large.error)


async def test_a_call_that_ends_its_process_loses_neither_earlier_answers_nor_the_next_batch(
    running: Running,
) -> None:
    """A call can be killed for its memory at any time."""

    def end_at_two(number: int) -> int:
        if number == 2:
            os._exit(7)
        return number

    found: list[int] = []
    with pytest.raises(Crashed, match="exited with code 7"):
        await running.answers(end_at_two, (0,), (1,), (2,), (3,), into=found)

    assert found == [0, 1]
    assert await running.answers(abs, (-3,)) == [3]


async def test_a_batch_that_takes_too_long_gives_the_rest_of_its_calls_back(
    running: Running,
) -> None:
    """Their times vary; another worker may be idle."""
    assert await running.answers(time.sleep, (1.1,), (0,), (0,)) == [None]


async def test_a_call_never_gets_the_answer_of_a_batch_that_was_cancelled(running: Running) -> None:
    """Temporal cancels a batch whose heartbeats are late. Its worker continues with the next one,
    and the calls of the first one are run by another worker.
    """
    batch = asyncio.create_task(running.answers(time.sleep, (0.3,), (0,)))
    assert await asyncio.wait((batch,), timeout=0.1) == (set(), {batch})
    batch.cancel()
    with pytest.raises(asyncio.CancelledError):
        await batch

    assert await running.answers(abs, (-1,), (-2,)) == [1, 2]


@pytest.mark.long
@given(
    st.lists(
        st.tuples(st.integers(1, 4), st.none() | st.integers(0, 4), st.booleans()),
        min_size=2,
        max_size=4,
    )
)
@example([(3, 1, False), (2, None, False)])
@example([(3, 1, True), (2, None, False)])
@settings(max_examples=6)
def test_each_call_gets_its_own_answer_whichever_batches_are_abandoned(
    batches: list[tuple[int, int | None, bool]],
) -> None:
    """After some answers or none, by a cancellation or by a reader that wants no more of them."""

    async def read(
        running: Running,
        batch: int,
        calls: int,
        wanted: int | None,
        cancelled: bool,
        found: list[complex],
    ) -> None:
        packed = frames.join(
            [
                cloudpickle.dumps(complex),
                *(cloudpickle.dumps(((batch, call), {})) for call in range(calls)),
            ]
        )
        task = asyncio.current_task()
        assert task is not None
        async with contextlib.aclosing(
            running.child.run(packed, calls, running.stopped)
        ) as results:
            if wanted == 0 and cancelled:
                task.cancel()
            async for each in results:
                found.append(restore(io.BytesIO(each), "call"))
                if len(found) == wanted and cancelled:
                    task.cancel()  # at its next await
                elif len(found) == wanted:
                    break

    async def run(directory: Path) -> None:
        running = Running(directory)
        try:
            for batch, (calls, wanted, cancelled) in enumerate(batches):
                found: list[complex] = []
                reading = asyncio.create_task(read(running, batch, calls, wanted, cancelled, found))
                await asyncio.wait((reading,))
                assert reading.cancelled() or reading.exception() is None
                assert found == [complex(batch, call) for call in range(calls)][: len(found)]
                assert wanted is not None or len(found) == calls
        finally:
            await running.child.close()

    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(run(Path(directory)))


async def test_a_stopped_worker_ends_the_call_that_runs(running: Running) -> None:
    """Its host is about to go away."""
    asyncio.get_running_loop().call_later(0.2, running.stopped.set)

    assert await running.answers(time.sleep, (1000,)) == []


@pytest.mark.parametrize(
    ("python", "message"),
    [((3, 2), "pickled by Python 3.2"), (None, "install iris-temporal in the image")],
)
def test_a_worker_that_cannot_start_says_what_its_job_needs(
    tmp_path: Path, python: tuple[int, int] | None, message: str
) -> None:
    """Another version of Python, or an image without the command of Iris."""
    running = Running(tmp_path)
    file = running.directory / "pool.json"
    file.write_text(
        json.dumps({**json.loads(file.read_text()), **({"python": python} if python else {})})
    )
    env = {"PATH": "", "IRIS_OUTPUT_DIR": str(tmp_path)}
    ran = subprocess.run(
        [sys.executable, running.directory / bundles.SCRIPT],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert ran.returncode in (1, 127)
    assert message in error_line(ran.stderr), "the job's reason has it"
