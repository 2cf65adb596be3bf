"""However a program ends, what it has finished is in its checkpoint, and what it was writing is
not.
"""

import asyncio
import os
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from iris.activities.host.attempt.lifecycle import Event
from iris.activities.host.files.checkpoint_files import FOLDER, scan
from iris.activities.host.files.checkpoints import End
from iris.activities.host.files.directory_events import MOST_WATCHED, Watch
from iris.storage.log_format import decode
from tests.activities.host.attempt.test_attempt import PATIENCE, Bench, bench
from tests.activities.host.files.test_checkpoints import PREFIX, Host
from tests.e2e.cluster import eventually
from tests.images import docker_image

__all__ = ["bench"]

#: In the first attempt, makes its directories. In the second, saves by renaming, begins further
#: saves, and ends in some way.
PROGRAM = """
import os, signal, sys, time
os.chdir(os.environ["IRIS_CHECKPOINT_DIR"])

def save(name, text):
    with open(name + ".new", "w") as file:
        file.write(text)
    os.rename(name + ".new", name)

def begin(name, text="ha"):
    halves.append(open(name, "w"))
    halves[-1].write(text)
    halves[-1].flush()

def last_save(*_):
    begin("weights")
    for name in ("state", "run/state"):
        save(name, "last")
        begin(name + ".new")
    begin("step_2/weights")
    globals()[sys.argv[1]](*map(int, sys.argv[2:]))

def when_told(ready):
    signal.signal(signal.SIGTERM, last_save)
    open(ready, "w").close()
    # A signal that comes just before a sleep begins is handled after it.
    while True: time.sleep(0.05)

def end(code): os._exit(code)
def leave(code): sys.exit(code)
def kill(number):
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
def stay(): time.sleep(1000)
def fail(): raise ValueError("a fault of the program")

halves = []
if os.environ["IRIS_ATTEMPT"] == "1":
    for name in ("run", "step_2"):
        os.mkdir(name)
    save("state", "first")
    begin("weights", "first")
    os._exit(0)
"""
FIRST = {"state": "first", "weights": "first"}
LAST = {"state": "last", "run/state": "last", "weights": "first"}


async def contents_after(bench: Bench) -> dict[str, str]:
    """What the next attempt finds."""
    host = Host(bench.store, bench.dir / uuid4().hex, 9)  # type: ignore[arg-type]
    await host.restore()
    return host.contents


async def log_of(bench: Bench, logs: str = "logs") -> str:
    chunks = [await bench.store.get(name) for name, _ in await bench.store.sizes(logs)]
    return "\n".join(line.data.decode() for chunk in chunks for line in decode(chunk or b""))


@pytest.mark.parametrize(
    "how",
    [
        ("end", "75"),
        ("end", "1"),
        ("end", "143"),
        ("leave", "75"),
        ("kill", "15"),
        ("kill", "9"),
        ("fail",),
    ],
    ids="-".join,
)
async def test_what_was_renamed_before_a_programs_end_is_in_its_checkpoint_and_no_half_file_is(
    bench: Bench, how: tuple[str, ...]
) -> None:
    """A job that saves just before it exits to be run again would never advance."""
    await bench.outcome(sys.executable, "-c", PROGRAM, checkpoints=PREFIX)
    assert await contents_after(bench) == FIRST
    task = bench.attempt(
        sys.executable, "-c", PROGRAM + "last_save()", *how, checkpoints=PREFIX, attempt=2
    )
    await asyncio.wait_for(task.run(), PATIENCE)

    assert await contents_after(bench) == LAST
    lacks = "run/state.new, state.new, step_2 and 1 more"
    assert (
        f"not in the checkpoint, because the program had not finished it when it ended: {lacks}"
        in await log_of(bench)
    )


@pytest.mark.parametrize("how", [("end", "143"), ("kill", "15"), ("stay",)], ids="-".join)
@pytest.mark.parametrize("event", [Event.PREEMPT, Event.TIMEOUT])
async def test_what_was_renamed_after_sigterm_is_in_the_checkpoint_too(
    bench: Bench, event: Event, how: tuple[str, ...]
) -> None:
    """Handled, saved and raised again, or killed when the grace is over: it is the save for which
    the grace is given.
    """
    await bench.outcome(sys.executable, "-c", PROGRAM, checkpoints=PREFIX)
    grace = timedelta(seconds=1 if how == ("stay",) else 1000)
    settings: dict[str, Any] = {"checkpoints": PREFIX, "attempt": 2, "grace": grace}
    ready = bench.dir / "ready"
    task = bench.attempt(
        sys.executable, "-c", f"{PROGRAM}when_told({str(ready)!r})", *how, **settings
    )
    running = asyncio.create_task(task.run())
    await asyncio.to_thread(eventually, ready.exists)
    task.handle(event, "the test ends it")
    await asyncio.wait_for(running, PATIENCE)

    assert await contents_after(bench) == LAST


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ("echo 1 > new; mv new state; exit 75", {"state": "1\n"}),
        ("mkdir run; echo 1 > run/new; mv run/new run/state; exit 75", {"run/state": "1\n"}),
        (
            "mkdir -p a/b/c; echo 1 > a/b/c/new; mv a/b/c/new a/b/c/state; exit 75",
            {"a/b/c/state": "1\n"},
        ),
        (
            "mkdir new; echo 1 > new/w; echo 2 > new/x; mv new step_1; exit 75",
            {"step_1/w": "1\n", "step_1/x": "2\n"},
        ),
        (
            "echo 1 > step_1; ln -s step_1 new; mv -T new latest; exit 75",
            {"step_1": "1\n", "latest": "1\n"},
        ),
        (
            "echo 1 > step_1; echo 2 > new; mv new latest; printf ha > step_2; exit 75",
            {"step_1": "1\n", "latest": "2\n"},
        ),
        ("echo 1 > new; mv new state; printf ha > state; exit 75", {}),
        ("echo 1 > new; exec 5>> new; mv new state; exec 5>&-; exit 75", {"state": "1\n"}),
    ],
)
async def test_a_change_is_finished_if_a_renaming_says_so(
    bench: Bench, changes: str, found: dict[str, str]
) -> None:
    """Of the file itself, of a directory around it, or of another file after it was closed; unless
    it is written again.
    """
    program = f"cd $IRIS_CHECKPOINT_DIR; {changes}"
    await bench.outcome("sh", "-c", program, checkpoints=PREFIX)

    assert await contents_after(bench) == found


@pytest.mark.parametrize(
    "image", [None, pytest.param(True, marks=pytest.mark.docker)], ids=["process", "container"]
)
@pytest.mark.parametrize("told", [True, False], ids=["told to stop", "by itself"])
async def test_what_a_helper_was_writing_when_sigterm_ended_it_is_not_in_the_checkpoint(
    bench: Bench, told: bool, image: bool | None
) -> None:
    """The exit code of the program that has left it tells nothing of its files."""
    helper = (
        'import time; open("new", "w").write("1"); __import__("os").rename("new", "state")\n'
        'while True: open("weights", "w").write("ha"); time.sleep(0.1)'
    )
    program = (
        'cd $IRIS_CHECKPOINT_DIR; python3 -c "$0" & until [ -s weights ]; do sleep 0.02; done;'
        " exit 0"
    )
    grace = timedelta(seconds=1000 if told else 1)
    run_in = docker_image() if image else None
    task = bench.attempt("sh", "-c", program, helper, checkpoints=PREFIX, grace=grace, image=run_in)
    running = asyncio.create_task(task.run())
    if told:
        record = bench.dir / "attempts" / "only" / "first_end.json"
        await asyncio.to_thread(eventually, record.exists)
        task.handle(Event.PREEMPT, "the test ends it")
    await asyncio.wait_for(running, PATIENCE)

    assert await contents_after(bench) == {"state": "1"}


@pytest.mark.docker
async def test_the_changes_of_a_container_are_followed_too(bench: Bench) -> None:
    """It has the directory mounted."""
    last = 'save("state", "last"); begin("state.new"); end(75)'
    for attempt, then in ((1, ""), (2, last)):
        task = bench.attempt(
            "python3",
            "-c",
            PROGRAM + then,
            image=docker_image(),
            checkpoints=PREFIX,
            attempt=attempt,
        )
        await asyncio.wait_for(task.run(), PATIENCE)

    assert await contents_after(bench) == {"state": "last", "weights": "first"}


async def test_what_a_program_was_writing_when_it_failed_stays_out_however_long_others_outlive_it(
    bench: Bench,
) -> None:
    """The workers of a program that was killed, for want of memory, live on for seconds, and its
    half file rests meanwhile.
    """
    await bench.outcome(sys.executable, "-c", PROGRAM, checkpoints=PREFIX)
    outlives = 'import subprocess; subprocess.Popen(["sleep", "4"]); last_save()'
    task = bench.attempt(
        sys.executable, "-c", PROGRAM + outlives, "kill", "9", checkpoints=PREFIX, attempt=2
    )
    await asyncio.wait_for(task.run(), PATIENCE)

    assert await contents_after(bench) == LAST


async def test_files_that_are_written_all_the_time_do_not_hold_up_what_was_renamed(
    bench: Bench,
) -> None:
    """Such as a log in the same directory: a job with one would never advance."""
    program = """
        cd $IRIS_CHECKPOINT_DIR; echo whole > metrics; mkdir run; echo whole > run/metrics
        [ $IRIS_ATTEMPT = 1 ] && exit 0
        exec 5>> log; echo a >&5; echo ha > metrics; echo ha > run/metrics
        for name in state run/state; do echo 1 > new; mv new $name; done
        echo b >&5; echo half > metrics; echo half > run/metrics; exit 75"""
    await bench.outcome("sh", "-c", program, checkpoints=PREFIX)
    await asyncio.wait_for(
        bench.attempt("sh", "-c", program, checkpoints=PREFIX, attempt=2).run(), PATIENCE
    )

    whole = {"metrics": "whole\n", "run/metrics": "whole\n"}
    assert await contents_after(bench) == {**whole, "state": "1\n", "run/state": "1\n"}


async def test_the_agent_follows_directories_that_are_made_moved_and_removed(
    tmp_path: Path,
) -> None:
    """An event is told with the path that its file has then."""
    top = tmp_path / FOLDER
    top.mkdir()
    (top / "old").mkdir()
    watch = Watch(tmp_path)
    (top / "old").rename(top / "new")
    watch.catch_up()
    for step in range(MOST_WATCHED + 10):  # over time, not at once
        (top / f"step_{step}").mkdir()
        watch.catch_up()
        (top / f"step_{step}").rmdir()
        watch.catch_up()
    (top / "new" / "draft").write_text("1")
    (top / "new" / "draft").rename(top / "new" / "state")
    order = watch.catch_up()
    found = {item.path: item for item in scan(tmp_path, None)}

    assert order.is_placed(found["new/state"], found)
    assert not order.is_placed(found["new/state"]._replace(path="old/state"), found)
    watch.close()


async def test_what_is_written_into_a_directory_after_its_renaming_is_not_finished(
    tmp_path: Path,
) -> None:
    """The renaming says only that what was in it is."""
    (tmp_path / FOLDER / "draft").mkdir(parents=True)
    watch = Watch(tmp_path)
    (tmp_path / FOLDER / "draft" / "before").write_text("1")
    (tmp_path / FOLDER / "draft").rename(tmp_path / FOLDER / "step_1")
    (tmp_path / FOLDER / "step_1" / "after").write_text("ha")
    order = watch.catch_up()
    found = {item.path: item for item in scan(tmp_path, None)}

    assert {
        path: order.is_finished(item, found) for path, item in found.items() if item.is_file
    } == {
        "step_1/before": True,
        "step_1/after": False,
    }
    watch.close()


async def test_events_that_the_system_drops_leave_nothing_for_finished_that_is_not(
    tmp_path: Path,
) -> None:
    """Its queue has 16,384, which a program can fill. What it tells after that counts again."""
    top = tmp_path / FOLDER
    top.mkdir()
    watch = Watch(tmp_path)
    (top / "draft").write_text("1")
    # Otherwise its times tell of the renaming if the machine pauses this test before it.
    os.utime(top / "draft", (later := time.time() + 60, later))
    (top / "draft").rename(top / "state")
    with (top / "a").open("wb", buffering=0) as a, (top / "b").open("wb", buffering=0) as b:
        for _ in range(10_000):
            a.write(b"x")
            b.write(b"x")
        order = watch.catch_up()
        found = {item.path: item for item in scan(tmp_path, None)}
        assert not any(order.is_finished(item, found) for item in found.values())
        a.write(b"x")
    (top / "draft").write_text("2")
    (top / "draft").rename(top / "state")
    order = watch.catch_up()
    found = {item.path: item for item in scan(tmp_path, None)}

    assert {path for path, item in found.items() if order.is_finished(item, found)} == {
        "state",
        "a",
        "b",
    }
    watch.close()


async def test_an_agent_that_takes_over_knows_what_is_renamed_from_then_on(bench: Bench) -> None:
    """It has not seen what was written before."""
    host = Host(bench.store, bench.dir / "1", 1)  # type: ignore[arg-type]
    (host.files / "before").write_text("ha")
    saver = host.agent()
    saver.watch()
    (host.files / "draft").write_text("1")
    (host.files / "draft").rename(host.files / "state")
    (host.files / "after").write_text("ha")

    assert await saver.finish(End(by_itself=False, at=time.time_ns()))
    assert await contents_after(bench) == {"state": "1"}
