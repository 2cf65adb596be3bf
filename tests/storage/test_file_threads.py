"""The threads for the file calls of a store, some of which hang."""

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

from iris.storage.object_store import MOST_THREADS, THREAD_PREFIX, in_file_thread

#: Ends its event loop while a call waits for the writer of a FIFO.
PROGRAM = """
import asyncio, sys
from pathlib import Path
from iris.storage.object_store import in_file_thread

async def main():
    loop, called = asyncio.get_running_loop(), asyncio.Event()

    def call():
        loop.call_soon_threadsafe(called.set)
        return Path(sys.argv[1]).read_bytes()

    hanging = asyncio.create_task(in_file_thread(call))
    await called.wait()

asyncio.run(main())
"""


async def test_calls_that_hang_keep_a_limited_number_of_threads() -> None:
    """An agent repeats calls to a file system that hangs for hours. Further calls wait, and are
    made when it answers.
    """
    called, answers = threading.Semaphore(0), threading.Event()

    def call() -> bool:
        called.release()
        return answers.wait(60)

    calls = [asyncio.create_task(in_file_thread(call)) for _ in range(3 * MOST_THREADS)]
    for _ in range(MOST_THREADS):
        await asyncio.to_thread(called.acquire)
    threads = [thread for thread in threading.enumerate() if thread.name.startswith(THREAD_PREFIX)]
    answers.set()

    assert len(threads) == MOST_THREADS
    assert await asyncio.gather(*calls) == [True] * len(calls)


def test_a_process_exits_while_a_file_call_hangs(tmp_path: Path) -> None:
    """An agent could only be stopped with SIGKILL: the interpreter waits for the threads of every
    executor.
    """
    os.mkfifo(tmp_path / "hangs")

    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, tmp_path / "hangs"], timeout=60, check=False
    )

    assert ended.returncode == 0


def test_a_forked_process_makes_file_calls_in_threads_of_its_own() -> None:
    """The threads stay in the parent, and a call would wait for ever. `multiprocessing` forks by
    default on Linux.
    """
    parent = asyncio.run(in_file_thread(os.getpid))
    if (child := os.fork()) == 0:
        try:
            os._exit(asyncio.run(asyncio.wait_for(in_file_thread(os.getpid), 20)) != os.getpid())
        finally:
            os._exit(2)

    assert parent == os.getpid()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
