"""The agent's own log: in the store while it lives, complete after its end, and never in its
way.
"""

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from iris.client.logs.stored import AgentReader
from iris.model import store_paths
from iris.storage.log_format import Stream
from iris.storage.object_store import Store
from iris.worker_agents.host import agent_log
from iris.worker_agents.host.agent_log import MAX_FILES, shipping_own_log
from iris.worker_agents.logging_setup import host_of_context

CLUSTER, HOST = "room", "host-1"
speaking = logging.getLogger("iris.test.agent")


@pytest.fixture(autouse=True)
def _as_processes_do() -> Iterator[None]:
    """From INFO on, as `iris agent` sets it."""
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.INFO)
    yield
    root.setLevel(level)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store((tmp_path / "store").as_uri(), create=True)


async def said(store: Store) -> list[str]:
    """What the store has of the agent, without the times."""
    reader = AgentReader(store, CLUSTER, HOST)
    return [
        entry.line.text.split(": ", 1)[-1] async for piece in reader.new_lines() for entry in piece
    ]


async def eventually(look: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while not await look():  # noqa: ASYNC110  the store tells nobody
            await asyncio.sleep(0.05)


async def test_what_the_agent_logs_is_in_the_store_while_it_lives(
    store: Store, tmp_path: Path
) -> None:
    """When a host is in trouble, nobody can log in to it to have a look."""
    async with shipping_own_log(store, CLUSTER, HOST, tmp_path / "agent"):
        speaking.warning("disk %s is slow", "sda")

        async def is_there() -> bool:
            return await said(store) == ["disk sda is slow"]

        await eventually(is_there)


async def test_agents_that_share_a_process_have_logs_of_their_own(
    store: Store, tmp_path: Path
) -> None:
    """A record belongs to the host that it names, else to the host for which the code ran; one
    about the process to all.
    """
    other = "host-2"

    async def serve(host: str) -> None:
        host_of_context.set(host)
        async with shipping_own_log(store, CLUSTER, host, tmp_path / host):
            both.release()
            await all_ship.wait()
            speaking.info("work of %s", host)
            await asyncio.to_thread(speaking.info, "a thread of %s", host)
            speaking.info("about %s", other, extra={"host": other})

    both, all_ship = asyncio.Semaphore(0), asyncio.Event()
    async with asyncio.TaskGroup() as agents:
        for host in (HOST, other):
            agents.create_task(serve(host))
            await both.acquire()
        speaking.info("low on memory")
        all_ship.set()

    assert sorted(await said(store)) == [
        f"a thread of {HOST} host={HOST}",
        "low on memory",
        f"work of {HOST} host={HOST}",
    ]


async def test_the_last_words_are_stored_too(store: Store, tmp_path: Path) -> None:
    """They say why it stopped; also with a traceback, every line of it; and what is logged
    afterwards is not its own.
    """
    async with shipping_own_log(store, CLUSTER, HOST, tmp_path / "agent"):
        speaking.info("first")
        try:
            raise ValueError("broken")
        except ValueError:
            speaking.exception("stopping")
    speaking.info("of somebody else")

    lines = await said(store)

    assert lines[:2] == ["first", "stopping"]
    assert lines[-1] == "broken"


async def test_each_life_of_an_agent_is_read_after_the_one_before(
    store: Store, tmp_path: Path
) -> None:
    """An agent that crashes again and again tells so in one log."""
    for life in range(3):
        async with shipping_own_log(store, CLUSTER, HOST, tmp_path / "agent"):
            speaking.info("life %d", life)

    reader = AgentReader(store, CLUSTER, HOST)
    lines = [entry async for piece in reader.new_lines() for entry in piece]

    assert [(entry.attempt, entry.line.text[-6:]) for entry in lines] == [
        (1, "life 0"),
        (2, "life 1"),
        (3, "life 2"),
    ]
    assert {entry.line.stream for entry in lines} == {Stream.STDERR}


async def test_what_an_agent_could_not_ship_before_it_was_killed_its_successor_does(
    store: Store, tmp_path: Path
) -> None:
    """The words before a `kill -9` are the most interesting ones. None is shipped twice."""
    script = f"""
import asyncio, logging, os, pathlib
from iris.storage.object_store import Store
from iris.worker_agents.host import agent_log
logging.getLogger().setLevel(logging.INFO)
async def main():
    store = Store({store.url!r})
    async with agent_log.shipping_own_log(store, {CLUSTER!r}, {HOST!r}, pathlib.Path({str(tmp_path / "agent")!r})):
        logging.info("shipped")
        while not await store.folders({store_paths.agent_logs(CLUSTER, HOST)!r}):
            await asyncio.sleep(0.02)
        logging.info("not shipped")
        os.kill(os.getpid(), 9)
asyncio.run(main())
"""
    agent = await asyncio.create_subprocess_exec(sys.executable, "-c", script)
    assert await asyncio.wait_for(agent.wait(), 60) == -9
    assert await said(store) == ["shipped"]

    async with shipping_own_log(store, CLUSTER, HOST, tmp_path / "agent"):
        speaking.info("back")

    assert await said(store) == ["shipped", "not shipped", "back"]


async def test_a_store_that_is_away_does_not_disturb_the_agent(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Everything waits on the disk, the agent hears nothing of it, and once the store is back all
    is there.
    """
    place = tmp_path / "store"
    store = Store(place.as_uri(), create=True)
    place.rmdir()
    place.write_text("in the way")
    async with shipping_own_log(store, CLUSTER, HOST, tmp_path / "agent"):
        speaking.info("unheard")

        async def was_tried() -> bool:
            return caplog.text.count("could not be stored") > 1

        await eventually(was_tried)
    place.unlink()
    place.mkdir()

    async with shipping_own_log(store, CLUSTER, HOST, tmp_path / "agent"):
        speaking.info("heard")

    assert await said(store) == ["unheard", "heard"]


async def test_a_directory_that_cannot_be_written_does_not_disturb_the_agent(
    store: Store, tmp_path: Path
) -> None:
    """A full disk, for one; what is missing is counted once it can be written again."""
    directory = tmp_path / "agent"
    directory.mkdir()
    (directory / "agent-log").write_text("in the way")
    async with shipping_own_log(store, CLUSTER, HOST, directory):
        speaking.info("lost")
        speaking.info("lost, too")
        (directory / "agent-log").unlink()
        speaking.info("found")

    assert await said(store) == [
        "2 records are missing here, because they could not be written",
        "found",
    ]


async def test_the_files_on_the_machine_are_bounded(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent lives for months; its log must not fill the disk that tasks need. The store has all
    of it.
    """
    monkeypatch.setattr(agent_log, "MAX_FILE_BYTES", 1000)
    for life in range(4):
        async with shipping_own_log(store, CLUSTER, HOST, tmp_path / "agent"):
            for number in range(50):
                speaking.info("life %d line %d %s", life, number, "x" * 50)

    files = list((tmp_path / "agent" / "agent-log").iterdir())
    assert len(files) == MAX_FILES
    assert all(file.stat().st_size < 1200 for file in files)
    assert len(await said(store)) == 200
