"""Attempts whose records the next agent cannot read, as after a change of Iris's version: none runs
on, no output is deleted.
"""

import asyncio
import json
import logging
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest

from iris.activities.host.machine.disk_usage import Occupant
from iris.activities.host.machine.disk_watch import watch
from iris.activities.host.runtimes.cleanup.leftover_processes import QUARANTINE, STATE
from iris.activities.host.runtimes.cleanup.remains import MOST_KEPT, empty_quarantine, find
from iris.messages.task import RunTask
from iris.model.states import TaskState
from iris.model.units import TIB
from tests import images
from tests.activities.host.attempt.test_attempt import PATIENCE, Bench, a_run, bench, dispatch
from tests.builders import a_host
from tests.containers import containers
from tests.e2e.cluster import alive, eventually
from tests.small_disk import small_disk

__all__ = ["bench"]

#: Programs that write their number into a file, and stay.
PLAIN = "echo said; echo $$ > {up}; exec sleep 1000"
IN_A_SESSION = "echo said; setsid --wait sh -c 'echo $$ > {up}; exec sleep 1000'"
WITHOUT_ENVIRONMENT = "echo said; env -i setsid --wait sh -c 'echo $$ > {up}; exec sleep 1000'"


def of_another_schema(record: Path) -> None:
    """As another version of Iris might write it: the key and the token are where they were."""
    task = json.loads(record.read_text())["task"]
    record.write_text(
        json.dumps({"schema": 7, "task": {"key": task["key"], "cmd": "true"}, "token": "dG9rZW4="})
    )


def cut_off(record: Path) -> None:
    """As a disk leaves it that was full, or lost its power."""
    record.write_bytes(record.read_bytes()[:40])


async def left_unreadable(
    bench: Bench, program: str, spoil: Callable[[Path], None]
) -> tuple[RunTask, int]:
    """An attempt with a running program, whose record was spoilt after its agent ended: its task,
    and the program's number.
    """
    task = a_run(
        "sh", "-c", program.format(up=bench.dir / "up"), incarnation=a_host("h1").incarnation
    )
    host = bench.tasks()
    await dispatch(host, task)
    pid = int(await bench.there_is("up"))
    (directory,) = (bench.dir / "attempts").iterdir()
    await asyncio.to_thread(
        eventually, lambda: "said" in (directory / "stdout").read_text(), PATIENCE, 0.02
    )
    await host.hand_over()
    spoil(directory / STATE)
    return task, pid


def quarantined(bench: Bench) -> list[Path]:
    return sorted((bench.dir / QUARANTINE).iterdir())


@pytest.mark.parametrize("program", [PLAIN, IN_A_SESSION, WITHOUT_ENVIRONMENT])
async def test_a_program_whose_record_has_another_schema_is_killed_and_its_job_hears_of_it(
    bench: Bench, program: str
) -> None:
    """The next agent used to delete the directory with logs and outputs, and to say nothing to
    anybody.
    """
    _, pid = await left_unreadable(bench, program, of_another_schema)
    successor = bench.tasks()
    await successor.take_over()

    assert not alive(pid)
    # Not before the host is registered: the job would be placed on the dead incarnation again.
    assert bench.server.told == []
    successor.report_lost()
    await asyncio.wait_for(bench.server.tried.wait(), PATIENCE)
    (outcome,) = bench.server.told
    (kept,) = quarantined(bench)
    assert (outcome.state, outcome.fault) == (TaskState.WORKER_FAILED, "attempt-lost")
    assert outcome.reason.endswith(
        "could not read the record of the attempt and killed its program; what it wrote is there"
        f" in {kept}"
    )
    assert (kept / "stdout").read_text() == "said\n"
    assert list((bench.dir / "attempts").iterdir()) == []


async def test_a_program_that_lost_its_shim_too_is_found_by_its_key(bench: Bench) -> None:
    """No lock leads to it any more."""
    _, pid = await left_unreadable(bench, IN_A_SESSION, of_another_schema)
    (directory,) = (bench.dir / "attempts").iterdir()
    os.kill(json.loads((directory / "started.json").read_text())["shim"], signal.SIGKILL)
    await bench.tasks().take_over()

    await asyncio.to_thread(eventually, lambda: not alive(pid), PATIENCE, 0.02)


async def test_a_record_that_was_cut_off_does_not_let_a_program_run_on(bench: Bench) -> None:
    """Its order to start still names the key. The token is lost, so its job learns of the loss when
    no heartbeat comes.
    """
    _, pid = await left_unreadable(bench, IN_A_SESSION, cut_off)
    (directory,) = (bench.dir / "attempts").iterdir()
    os.kill(json.loads((directory / "started.json").read_text())["shim"], signal.SIGKILL)
    successor = bench.tasks()
    await successor.take_over()
    successor.report_lost()

    await asyncio.to_thread(eventually, lambda: not alive(pid), PATIENCE, 0.02)
    assert [(kept / "stdout").read_text() for kept in quarantined(bench)] == ["said\n"]
    assert bench.server.tries == 0


async def test_the_log_of_the_agent_names_the_file_and_the_remedy_and_no_value(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """Records hold tokens and environments."""
    await left_unreadable(bench, PLAIN, of_another_schema)
    with caplog.at_level(logging.ERROR):
        await bench.tasks().take_over()

    (kept,) = quarantined(bench)
    (said,) = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    unreadable = f"the record of an attempt could not be read: {kept / STATE}"
    assert f"{unreadable}: task.placement_key: Field required" in said
    assert said.endswith(f"its output is in {kept}: copy what you need, then delete that directory")
    assert "dG9rZW4=" not in said


async def test_a_directory_without_a_record_is_removed(bench: Bench) -> None:
    """Its agent died before it started anything."""
    (bench.dir / "attempts" / "begun" / "work").mkdir(parents=True)
    await bench.tasks().take_over()

    assert list((bench.dir / "attempts").iterdir()) == []
    assert not (bench.dir / QUARANTINE).exists()


async def test_the_other_attempts_are_continued(bench: Bench) -> None:
    """One record is no reason to give up the rest."""
    _, pid = await left_unreadable(bench, PLAIN, lambda _: None)
    broken = bench.dir / "attempts" / "broken"
    broken.mkdir()
    (broken / STATE).write_text("{}")
    successor = bench.tasks()
    await successor.take_over()

    assert alive(pid)
    await successor.kill_all("the test ends")
    assert len(quarantined(bench)) == 1


def leave(attempts: Path, names: Sequence[str]) -> None:
    for name in names:
        (attempts / name).mkdir(parents=True)
        (attempts / name / STATE).write_text("{}")
        find(attempts)


def test_only_the_newest_stay(tmp_path: Path) -> None:
    """They would fill the disk."""
    names = [f"{number:02}" for number in range(MOST_KEPT + 2)][::-1]
    leave(tmp_path / "attempts", names)

    assert {path.name.partition("-")[0] for path in (tmp_path / QUARANTINE).iterdir()} == set(
        names[2:]
    )


async def test_a_quarantine_is_given_up_before_an_attempt_ends_for_its_disk(tmp_path: Path) -> None:
    """What nobody may ever look at is not worth a running program."""
    with small_disk(tmp_path / "small", 8_000) as disk:
        leave(disk / "attempts", ["old"])
        (kept,) = (disk / QUARANTINE).iterdir()
        running = disk / "attempts" / "running"
        running.mkdir()
        (running / "data").write_bytes(bytes(1_000_000))
        with suppress(OSError), (kept / "stdout").open("wb", buffering=0) as output:
            while output.write(bytes(100_000)):
                pass
        ended: list[str] = []
        occupant = Occupant(
            running, requested=0, in_container=False, ending=False, told_to_end=lambda: False
        )
        watching = asyncio.create_task(
            watch(
                lambda: {"running": occupant},
                lambda key, _: ended.append(key),
                [disk],
                TIB,
                make_room=lambda: empty_quarantine(disk / "attempts"),
            )
        )
        await asyncio.to_thread(eventually, lambda: not kept.exists(), PATIENCE, 0.02)
        watching.cancel()

    assert ended == []


# -- containers
# --------------------------------------------------------------------------------------------------


@pytest.mark.docker
async def test_a_container_whose_attempt_has_an_unreadable_record_is_removed(bench: Bench) -> None:
    """Its engine runs it, not the shim; a record that was cut off has no key, but the container's
    labels name the directory.
    """
    host, key = bench.tasks(), f"unreadable/{uuid4().hex}"
    task = a_run("sh", "-c", "echo said; exec sleep 1000", image=images.docker_image(), key=key)
    await dispatch(host, task.model_copy(update={"incarnation": a_host("h1").incarnation}))
    await asyncio.to_thread(
        eventually,
        lambda: any("said" in each.read_text() for each in stdouts(bench)),
        PATIENCE,
        0.05,
    )
    await host.hand_over()
    (directory,) = (bench.dir / "attempts").iterdir()
    cut_off(directory / STATE)
    (directory / "launch.json").write_text("{")
    await bench.tasks().take_over()

    assert containers(f"iris.key={key}") == []
    assert [(kept / "stdout").read_text() for kept in quarantined(bench)] == ["said\n"]


def stdouts(bench: Bench) -> list[Path]:
    return [*bench.dir.glob("attempts/*/stdout")]
