"""An attempt's end, as its host tells it: whose fault it was, and what is said when this life of
the host is over.
"""

import asyncio
import gc
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import pytest
from temporalio.activity import _CompleteAsyncError
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import ActivityEnvironment

from iris.activities.host.attempt.activity import HOST_LEAVES, HOST_REFUSED
from iris.activities.host.attempt.attempt import Attempt
from iris.activities.host.attempt.host_context import HostContext
from iris.activities.host.attempt.lifecycle import Event
from iris.activities.host.attempt.run_task import Tasks
from iris.activities.host.environment.secret_values import HostSecrets
from iris.activities.host.runtimes.base import Launch
from iris.activities.host.runtimes.cleanup.leftover_processes import STATE, AttemptFile
from iris.activities.host.runtimes.program import Program
from iris.activities.host.runtimes.shim import shim
from iris.messages.task import Rank, RunTask, TaskProgress
from iris.model import names
from iris.model.host.faults import FAULTS, Fault, parse_fault
from iris.model.job.attempts import TaskOutcome
from iris.model.job.environments import EnvironmentSpec
from iris.model.job.secrets import ALL_OF_THE_USERS
from iris.model.states import TaskState
from iris.scheduling.jobs.retries import hosts_after
from iris.storage.object_store import Store
from tests.builders import a_host, a_placement
from tests.e2e.cluster import alive, eventually
from tests.small_disk import small_disk

BUSY = "The TPU is already in use by process with pid 4711."
PATIENCE = 90.0


class Server:
    """As much of a Temporal client as an attempt needs. It takes outcomes, unless it is told not
    to.
    """

    def __init__(self, *refusals: RPCStatusCode) -> None:
        self.refusals = list(refusals)
        self.tries = 0
        #: Whether it still knows the attempts.
        self.wanted = True
        #: Whether it hears no reports.
        self.away = False
        self.told: list[TaskOutcome] = []
        self.signals: list[str] = []
        #: What it was told of running attempts.
        self.progress: list[TaskProgress] = []
        #: How many more signals it does not get.
        self.deaf = 0
        #: Looked at whenever an outcome arrives.
        self.when_told: Callable[[], None] = lambda: None
        self.tried = asyncio.Event()

    def get_async_activity_handle(self, *, task_token: bytes) -> "Server":
        return self

    def get_workflow_handle(self, workflow: str) -> "Server":
        return self

    async def signal(self, name: str, message: Any, **__: Any) -> None:
        if self.deaf:
            self.deaf -= 1
            raise RPCError("no", RPCStatusCode.UNAVAILABLE, b"")
        self.signals.append(name)
        if isinstance(message, TaskProgress):
            self.progress.append(message)

    async def heartbeat(self, *_: Any, **__: Any) -> None:
        if self.away:
            raise RPCError("no", RPCStatusCode.UNAVAILABLE, b"")
        if not self.wanted:
            raise RPCError("no", RPCStatusCode.NOT_FOUND, b"")

    async def complete(self, outcome: TaskOutcome, *, rpc_timeout: timedelta) -> None:
        self.tries += 1
        self.tried.set()
        if self.refusals:
            raise RPCError("no", self.refusals.pop(0), b"")
        self.when_told()
        self.told.append(outcome)

    @property
    def client(self) -> Client:
        return self  # type: ignore[return-value]


def a_run(*command: str, **changes: Any) -> RunTask:
    settings = {
        # of its own: whatever carries it is killed, also by a run beside this one
        "key": f"ada/train:0@1/{uuid4().hex}",
        "owner": "local/job/ada/train",
        "job": "ada/train",
        "index": 0,
        "attempt": 1,
        "num_tasks": 1,
        "incarnation": "first",
        "env": {},
        "workdir": None,
        "timeout": None,
        "grace": timedelta(seconds=1000),
        "logs": "logs/ada/train/run/0/1",
    }
    settings |= changes
    return RunTask(command=command, **{"placement_key": settings["key"], **settings})


class Bench:
    """Attempts on one host, with files and a store of their own."""

    def __init__(self, directory: Path) -> None:
        self.server = Server()
        self.dir = directory
        #: Of its own: whatever runs on a host that is gone is killed, also by a run beside this
        #: one.
        self.place = a_host(f"h-{uuid4().hex}")
        self.store = Store((directory / "store").as_uri(), create=True)

    @property
    def vacated(self) -> str:
        """The signal with which the host gives back a placement."""
        return names.vacate_signal(self.place.id)

    def attempt(self, *command: str, faults: Sequence[Fault] = FAULTS, **changes: Any) -> Attempt:
        state = AttemptFile.of(a_run(*command, **changes), b"token", datetime.now(UTC))
        return Attempt(self._context(faults), state, self.dir / "attempts" / "only")

    async def outcome(self, *command: str, **settings: Any) -> TaskOutcome:
        """What a program that ends by itself comes to."""
        await asyncio.wait_for(self.attempt(*command, **settings).run(), PATIENCE)
        (outcome,) = self.server.told
        return outcome

    def tasks(self) -> Tasks:
        return Tasks(self._context())

    def _context(self, faults: Sequence[Fault] = FAULTS) -> HostContext:
        return HostContext(
            client=self.server.client,
            store=self.store,
            cluster="local",
            host=self.place,
            directory=self.dir,
            cache_dir=self.dir / "cache",
            faults=faults,
            base_env={"PATH": "/usr/bin:/bin"},
            secrets=HostSecrets(ALL_OF_THE_USERS),
        )

    async def there_is(self, name: str) -> str:
        """What a program has written into this file, once it has."""
        file = self.dir / name
        await asyncio.to_thread(
            eventually, lambda: file.exists() and file.read_text().endswith("\n"), PATIENCE, 0.02
        )
        return file.read_text()


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


async def dispatch(tasks: Tasks, task: RunTask, token: bytes = b"token") -> None:
    """As the worker does: the activity starts the attempt and stays open."""
    run: Callable[[RunTask], Awaitable[TaskOutcome]] = tasks.run_task
    environment = ActivityEnvironment()
    environment.info = replace(environment.info, task_token=token)
    with pytest.raises(_CompleteAsyncError):
        await environment.run(run, task)


# -- where a gang meets
# --------------------------------------------------------------------------------------------------


async def test_a_gangs_first_task_is_refused_if_its_port_is_in_use_without_blame_for_the_host(
    bench: Bench,
) -> None:
    """Its program could not listen, or the gang would meet another cluster's."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        gang = {"num_tasks": 2, "rank": Rank(coordinator=f"127.0.0.1:{port}")}
        refused = await bench.outcome("true", index=0, **gang)
        bench.server.told.clear()
        ran = await bench.outcome("true", index=1, **gang)

    assert (refused.state, refused.refused) == (TaskState.WORKER_FAILED, True)
    assert f"port {port} of the gang's coordinator is in use on this host" in refused.reason
    assert ran.state is TaskState.SUCCEEDED


# -- whose fault
# --------------------------------------------------------------------------------------------------


async def test_a_program_that_a_busy_accelerator_ended_is_no_failure_of_its_own(
    bench: Bench,
) -> None:
    """It is run again on the account of preemptions, and the reason says what was recognised."""
    outcome = await bench.outcome("sh", "-c", f"echo '{BUSY}' >&2; exit 1")

    assert (outcome.state, outcome.fault, outcome.exit_code) == (
        TaskState.WORKER_FAILED,
        "accelerator-busy",
        1,
    )
    assert (
        outcome.reason
        == "infrastructure fault: its accelerator is still held by another process (exited with"
        " code 1)"
    )


async def test_a_job_whose_secret_the_host_does_not_have_fails_and_says_which(bench: Bench) -> None:
    """It fails on every host, so it is not retried on the account of the machines; and nothing of
    it has run.
    """
    outcome = await bench.outcome(
        "touch", str(bench.dir / "ran"), secrets={"HF_TOKEN": "host-env:OURS"}
    )

    assert (outcome.state, outcome.fault, outcome.exit_code) == (TaskState.FAILED, "", 126)
    assert outcome.reason.startswith("secret HF_TOKEN (host-env:OURS) cannot be used: ")
    assert not (bench.dir / "ran").exists()


async def test_what_an_attempt_keeps_and_reports_has_no_value_of_a_secret(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last lines go into the history, the chunks into the store, the state onto the disk."""
    monkeypatch.setenv("OURS", "hunter2-of-the-agent")
    monkeypatch.setenv("TINY", "4711")
    # cp may complain of drafts that are renamed meanwhile. Standard error is a pipe of its own,
    # whose lines may come last.
    script = (
        f"cp -r {bench.dir}/attempts {bench.dir}/seen 2>/dev/null; echo $HF_TOKEN; echo $PIN;"
        " exit 3"
    )
    outcome = await bench.outcome(
        "sh", "-c", script, secrets={"HF_TOKEN": "host-env:OURS", "PIN": "host-env:TINY"}
    )

    assert (outcome.exit_code, outcome.last_lines.splitlines()[-2:]) == (3, ["***", "4711"])
    assert "the value of secret PIN is shorter than 6 characters" in outcome.last_lines
    files = [path for path in bench.dir.rglob("*") if path.is_file()]
    assert {"state.json", "launch.json", "orders"} <= {path.name for path in files}
    assert [path for path in files if b"hunter2" in path.read_bytes()] == []


async def test_a_fault_is_recognised_in_a_program_that_a_signal_ended(bench: Bench) -> None:
    """Libraries abort."""
    outcome = await bench.outcome("sh", "-c", f"echo '{BUSY}'; kill -ABRT $$")

    assert (outcome.state, outcome.fault, outcome.signal) == (
        TaskState.WORKER_FAILED,
        "accelerator-busy",
        "SIGABRT",
    )
    assert outcome.reason.endswith("(killed by SIGABRT)")


async def test_a_host_can_be_told_of_other_faults(bench: Bench) -> None:
    """What breaks on a fleet is known to those who run it."""
    outcome = await bench.outcome(
        "sh", "-c", "echo link 3 down; exit 7", faults=[parse_fault(r"fabric=link \d down")]
    )

    assert (outcome.state, outcome.fault, outcome.exit_code) == (
        TaskState.WORKER_FAILED,
        "fabric",
        7,
    )


@pytest.mark.parametrize(
    ("command", "settings", "state", "reason"),
    [
        ("echo fine; exit 1", {}, TaskState.FAILED, "exited with code 1"),
        (
            "echo 'ValueError: no data'; echo end; exit 1",
            {},
            TaskState.FAILED,
            "exited with code 1: ValueError: no data",
        ),
        (f"echo '{BUSY}'", {}, TaskState.SUCCEEDED, ""),
        (
            f"echo '{BUSY}'; exec sleep 1000",
            {"timeout": timedelta(seconds=0.5), "grace": timedelta(0)},
            TaskState.FAILED,
            "ran",
        ),
    ],
    ids=["nothing recognised", "an error of its own", "it succeeded", "it was ended"],
)
async def test_the_words_of_a_fault_excuse_no_other_end(
    bench: Bench, command: str, settings: dict[str, Any], state: TaskState, reason: str
) -> None:
    """Only a program that failed by itself, and said so, is excused."""
    outcome = await bench.outcome("sh", "-c", command, **settings)

    assert (outcome.state, outcome.fault) == (state, "")
    assert outcome.reason.startswith(reason)


async def test_an_attempt_that_its_host_cannot_keep_is_the_hosts_fault(bench: Bench) -> None:
    """A disk that is full, or files that somebody deleted."""
    attempt = bench.attempt(
        "sh", "-c", "mv ../../only ../../gone; rm -rf ../../gone; exec sleep 1000"
    )
    await asyncio.wait_for(attempt.run(), PATIENCE)
    (outcome,) = bench.server.told

    assert (outcome.state, outcome.fault) == (TaskState.WORKER_FAILED, "attempt-lost")


@pytest.mark.parametrize(
    ("filled_by", "fault", "refused", "struck"),
    [
        ("itself", "disk-filled", False, False),
        ("another", "", True, False),
        ("nobody", "", False, True),
    ],
)
async def test_a_disk_that_jobs_have_filled_is_no_fault_of_its_host(
    tmp_path: Path, filled_by: str, fault: str, refused: bool, struck: bool
) -> None:
    """Three attempts of one job that filled the disk used to close the host to everybody, and so
    one host after the other.
    """
    with small_disk(tmp_path / "small", 24_000) as disk:
        # On other disks: uv is larger than this one, and the log has to be stored.
        for name in (
            "cache",
            "store",
        ):
            (tmp_path / name).mkdir()
            (disk / name).symlink_to(tmp_path / name)
        bench = Bench(disk)
        setup = (
            EnvironmentSpec(setup=("head -c 50000000 /dev/zero > data",))
            if filled_by == "itself"
            else EnvironmentSpec()
        )
        if filled_by != "itself":
            place = disk / "attempts" / "another" if filled_by == "another" else disk / "left"
            place.mkdir(parents=True)
            (place / "data").write_bytes(bytes(22_000_000))
        outcome = await bench.outcome("true", environment=setup)

        assert (outcome.state, outcome.fault, outcome.refused) == (
            TaskState.WORKER_FAILED,
            fault,
            refused,
        ), outcome.reason
        assert bool(hosts_after(a_placement(bench.place), [outcome]).spoilt_by) is struck


# -- this life of the host is over
# ---------------------------------------------------------------------------------------------

#: Writes its own number and that of a child in a session of its own, and stays.
FAMILY = """
import os, pathlib, subprocess, time
child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
pathlib.Path(os.environ["FAMILY"]).write_text(f"{os.getpid()} {child.pid}\\n")
time.sleep(1000)
"""


async def test_what_runs_on_an_abandoned_host_is_dead_before_its_job_hears_of_it(
    bench: Bench,
) -> None:
    """Children in other sessions too: a successor must not meet them. And the job hears at once,
    not after a minute.
    """
    tasks, families = bench.tasks(), [f"family-{number}" for number in range(2)]
    for name in families:
        task = a_run(
            sys.executable,
            "-c",
            FAMILY,
            key=f"{name} of {uuid4().hex}",
            env={"FAMILY": str(bench.dir / name)},
        )
        await dispatch(tasks, task)
    pids = [int(pid) for name in families for pid in (await bench.there_is(name)).split()]
    living: list[int] = []
    bench.server.when_told = lambda: living.append(sum(alive(pid) for pid in pids[::2]))
    await asyncio.wait_for(tasks.kill_all("its slice has ended"), PATIENCE)

    assert [(outcome.state, outcome.reason) for outcome in bench.server.told] == [
        (TaskState.WORKER_FAILED, f"host {bench.place.id}: its slice has ended")
    ] * 2
    # When the first job hears, the other's program may still be dying.
    assert living in (
        [0, 0],
        [1, 0],
    )
    _, left = psutil.wait_procs(
        [process for process in psutil.process_iter() if process.pid in pids], timeout=PATIENCE
    )
    assert left == []
    assert list((bench.dir / "attempts").iterdir()) == []


@pytest.mark.parametrize("status", [RPCStatusCode.NOT_FOUND, RPCStatusCode.UNAVAILABLE])
async def test_an_abandoned_host_says_it_once_and_goes_on(
    bench: Bench, status: RPCStatusCode
) -> None:
    """The server may not want to hear of it, or be away; the host's next life does not wait for
    that.
    """
    bench.server.refusals = [status] * 100
    tasks = bench.tasks()
    await dispatch(tasks, a_run("sh", "-c", f"echo up > {bench.dir / 'up'}; exec sleep 1000"))
    await bench.there_is("up")
    await asyncio.wait_for(tasks.kill_all("its slice has ended"), PATIENCE)

    assert (bench.server.tries, bench.server.told) == (1, [])


@pytest.mark.parametrize("ends", ["preempt_all", "kill_all"])
async def test_an_agent_that_ends_its_incarnation_says_so_when_it_refuses(
    bench: Bench, ends: str
) -> None:
    """The scheduler places nothing more on this incarnation, but may on another of the host."""
    tasks = bench.tasks()
    await asyncio.wait_for(getattr(tasks, ends)("stopped"), PATIENCE)

    own = a_host("h1").incarnation
    for incarnation, expected in ((own, HOST_LEAVES), ("another", HOST_REFUSED)):
        with pytest.raises(ApplicationError, match="refused the task: ") as refused:
            await ActivityEnvironment().run(tasks.run_task, a_run("true", incarnation=incarnation))
        assert refused.value.type == expected


async def test_a_task_that_arrives_during_a_hand_over_is_run_once_by_the_next_agent(
    bench: Bench,
) -> None:
    """It used to be refused, and an upgrade of the agent cost its job an attempt."""
    tasks, runs = bench.tasks(), bench.dir / "runs"
    await tasks.hand_over()
    task = a_run("sh", "-c", f"echo run >> {runs}")
    await dispatch(tasks, task)
    await dispatch(tasks, task)  # the service may hand out one activity twice
    assert not runs.exists()
    bench.server.away = True  # the server may be replaced in the same upgrade
    await bench.tasks().take_over()

    await asyncio.to_thread(eventually, lambda: bench.server.told, PATIENCE, 0.02)
    assert [outcome.state for outcome in bench.server.told] == [TaskState.SUCCEEDED]
    assert runs.read_text() == "run\n"


async def test_a_running_attempt_that_is_sent_again_during_a_hand_over_stays_as_it_is(
    bench: Bench,
) -> None:
    """Its record names what it uses on the host; and the restored service's attempt of the same
    name is refused, which nobody would run.
    """
    tasks, task = bench.tasks(), a_run("sh", "-c", f"echo up > {bench.dir / 'up'}; exec sleep 1000")
    await dispatch(tasks, task)
    await bench.there_is("up")
    await tasks.hand_over()
    (record,) = (bench.dir / "attempts").glob(f"*/{STATE}")
    record.write_text(before := f"{record.read_text()} ")
    await dispatch(tasks, task)
    with pytest.raises(ApplicationError) as refused:
        await dispatch(tasks, task, token=b"of the restored job")
    assert (record.read_text(), refused.value.type) == (before, HOST_REFUSED)

    successor = bench.tasks()
    await successor.take_over()
    await successor.kill_all("the test is over")


async def test_an_attempt_is_refused_while_an_earlier_one_of_its_name_has_not_ended(
    bench: Bench,
) -> None:
    """After the service's database was restored, a job gives its attempts the same names again."""
    tasks, task = bench.tasks(), a_run("sleep", "1000")
    await dispatch(tasks, task)
    await dispatch(tasks, task)  # the service may hand out one activity twice

    with pytest.raises(ApplicationError) as refused:
        await dispatch(tasks, task, token=b"of the restored job")
    await tasks.kill_all("the test is over")

    assert refused.value.type == HOST_REFUSED


async def test_an_attempt_that_was_given_up_tells_nobody_although_its_host_is_abandoned(
    bench: Bench,
) -> None:
    """It has a successor, or will have as soon as its heartbeat has run out; the host has no say in
    that.
    """
    attempt = bench.attempt("sleep", "1000")
    living = asyncio.create_task(attempt.run())
    attempt.handle(Event.GIVEN_UP, "the server does not wait for the attempt any more")
    attempt.handle(Event.HOST_OVER, "its slice has ended")
    await asyncio.wait_for(living, PATIENCE)

    assert bench.server.tries == 0


async def test_a_host_that_tasks_of_a_gang_share_is_free_when_the_last_of_them_is_dead(
    bench: Bench,
) -> None:
    """The first one's end would give away what the others still use."""
    tasks, claim = bench.tasks(), f"ada/train@1/{uuid4().hex}"
    bench.server.refusals = [RPCStatusCode.NOT_FOUND] * 2
    wait = f"until [ -e {bench.dir}/end.$IRIS_TASK_INDEX ]; do sleep 0.05; done"
    for index in (0, 1):
        await dispatch(tasks, a_run("sh", "-c", wait, index=index, placement_key=claim, env={}))
    (bench.dir / "end.0").touch()
    await asyncio.to_thread(
        eventually,
        lambda: bench.server.tries == 1 and len(_attempts_of(bench)) == 1,
        PATIENCE,
        0.02,
    )
    early = list(bench.server.signals)
    (bench.dir / "end.1").touch()
    await asyncio.to_thread(
        eventually, lambda: bench.server.tries == 2 and not _attempts_of(bench), PATIENCE, 0.02
    )

    assert bench.vacated not in early
    assert bench.server.signals.count(bench.vacated) == 1


async def test_an_attempt_that_is_over_keeps_no_file_open(bench: Bench) -> None:
    """An agent rarely collects garbage. Of thousands of small jobs, it must not keep a descriptor
    each.
    """
    gc.disable()
    try:
        await bench.attempt("true").run()
        before = psutil.Process().num_fds()
        for _ in range(3):
            await bench.attempt("true").run()
        assert psutil.Process().num_fds() <= before
    finally:
        gc.enable()


def _attempts_of(bench: Bench) -> list[Path]:
    return list((bench.dir / "attempts").iterdir())


async def test_an_outcome_that_was_on_its_way_is_not_replaced(bench: Bench) -> None:
    """A program that has ended well has ended well; but a server that is away is waited for no
    longer.
    """
    bench.server.refusals = [RPCStatusCode.UNAVAILABLE]
    attempt = bench.attempt("true")
    living = asyncio.create_task(attempt.run())
    await asyncio.wait_for(bench.server.tried.wait(), PATIENCE)
    attempt.handle(Event.HOST_OVER, "its slice has ended")
    await asyncio.wait_for(living, PATIENCE)

    assert [outcome.state for outcome in bench.server.told] == [TaskState.SUCCEEDED]


async def test_the_first_reason_for_an_end_stays_when_its_grace_is_cut_short(bench: Bench) -> None:
    """A job that was cancelled is KILLED, although its program had no time to stop."""
    attempt = bench.attempt(
        "sh", "-c", f"trap '' TERM; echo up > {bench.dir / 'up'}; while :; do sleep 0.1; done"
    )
    living = asyncio.create_task(attempt.run())
    await bench.there_is("up")
    attempt.handle(Event.CANCEL, "cancelled")
    attempt.handle(Event.HOST_OVER, "its slice has ended")
    await asyncio.wait_for(living, PATIENCE)

    assert [(outcome.state, outcome.reason) for outcome in bench.server.told] == [
        (TaskState.KILLED, "cancelled")
    ]


@pytest.mark.parametrize(("code", "state"), [(0, TaskState.SUCCEEDED), (3, TaskState.FAILED)])
async def test_a_program_that_has_ended_keeps_its_outcome_while_a_process_that_it_left_is_stopped(
    bench: Bench, code: int, state: TaskState
) -> None:
    """A cancellation or the end of the host meets a helper that still writes; the program itself
    was done.
    """
    helper = (
        f"trap 'echo saved; exit' TERM; echo up > {bench.dir / 'up'}; while :; do sleep 0.1; done"
    )
    attempt = bench.attempt(
        "sh",
        "-c",
        f'sh -c "$0" & until [ -e {bench.dir / "up"} ]; do sleep 0.02; done; exit {code}',
        helper,
    )
    living = asyncio.create_task(attempt.run())
    await bench.there_is("up")
    log = bench.dir / "attempts" / "only" / "first_end.json"
    await asyncio.to_thread(eventually, log.exists, PATIENCE, 0.02)
    attempt.handle(Event.PREEMPT, "the host stops")
    await asyncio.wait_for(living, PATIENCE)

    (outcome,) = bench.server.told
    assert (outcome.state, outcome.exit_code, "saved" in outcome.last_lines) == (state, code, True)


async def test_an_attempt_says_what_it_waits_for_when_its_program_has_ended(bench: Bench) -> None:
    """Otherwise a daemon that the program left looks like a program that does not end."""
    attempt = bench.attempt("sh", "-c", "sleep 1000 &", grace=timedelta(seconds=2))
    await asyncio.wait_for(attempt.run(), PATIENCE)

    (outcome,) = bench.server.told
    said = (
        "the program exited with code 0, and processes that it has started still run: they have 2s"
        " to end"
    )
    assert (outcome.state, said in outcome.last_lines) == (
        TaskState.SUCCEEDED,
        True,
    ), outcome.last_lines


# -- another agent has begun it
# -------------------------------------------------------------------------------------------------


def left_behind(bench: Bench, **changes: Any) -> Path:
    """The directory of an attempt whose agent died."""
    directory = bench.dir / "attempts" / "left"
    directory.mkdir(parents=True)
    task = a_run("true", incarnation=a_host("h1").incarnation, outputs="outputs/left")
    AttemptFile.of(task, b"token", datetime.now(UTC)).model_copy(update=changes).write(directory)
    return directory


async def test_outputs_that_were_still_on_their_way_are_kept_by_the_next_agent(
    bench: Bench,
) -> None:
    """The server has the outcome and knows the attempt no more: that is no reason to throw its
    results away.
    """
    directory = left_behind(bench, told=True)
    (directory / "outputs").mkdir()
    (directory / "outputs" / "result").write_text("weights")
    (directory / "stdout").write_text("last words\n")
    bench.server.wanted = False
    await bench.tasks().take_over()

    await asyncio.to_thread(eventually, lambda: not directory.exists(), PATIENCE, 0.02)
    assert await bench.store.get("outputs/left/result") == b"weights"
    assert b"last words" in (await bench.store.get("logs/ada/train/run/0/1/0000000000.log") or b"")
    assert bench.server.tries == 0


async def test_an_attempt_that_is_not_wanted_any_more_is_dead_before_the_next_agent_takes_work(
    bench: Bench,
) -> None:
    """Its successor may run here."""
    directory = left_behind(bench)
    program = Program(directory)
    launch = Launch(argv=("sleep", "1000"), env={"PATH": "/usr/bin:/bin"}, cwd=str(directory))
    program.start(launch, shim.now() + 3600)
    await asyncio.to_thread(eventually, lambda: program.started is not None, PATIENCE, 0.01)
    assert program.started is not None
    pid = program.started.pid or 0
    bench.server.wanted = False
    await bench.tasks().take_over()

    assert not alive(pid)


async def test_a_program_that_was_being_prepared_is_prepared_again(bench: Bench) -> None:
    """Nothing had been started, so it is started now, once."""
    directory = left_behind(bench)
    (directory / "work").mkdir()
    (directory / "work" / "half").touch()
    await bench.tasks().take_over()

    await asyncio.to_thread(eventually, lambda: not directory.exists(), PATIENCE, 0.02)
    assert [outcome.state for outcome in bench.server.told] == [TaskState.SUCCEEDED]


async def test_what_ended_while_nobody_looked_has_its_true_end_also_in_another_life_of_the_host(
    bench: Bench,
) -> None:
    """A finished task's result is not thrown away because its host was given up."""
    directory = left_behind(bench)
    task = a_run("sh", "-c", "exit 3", incarnation="former", outputs="outputs/left")
    AttemptFile.of(task, b"token", datetime.now(UTC)).write(directory)
    program = Program(directory)
    program.start(
        Launch(argv=task.command, env={"PATH": "/usr/bin:/bin"}, cwd=str(directory)),
        shim.now() + 3600,
    )
    await program.wait()
    tasks = bench.tasks()
    await tasks.take_over()
    tasks.report_lost()

    await asyncio.to_thread(eventually, lambda: not directory.exists(), PATIENCE, 0.02)
    assert [(outcome.state, outcome.exit_code) for outcome in bench.server.told] == [
        (TaskState.FAILED, 3)
    ]


async def test_an_abandoned_host_does_not_wait_for_a_store_that_is_away(bench: Bench) -> None:
    """What is not in the store yet stays on its disk, and the next life brings it there."""
    directory = left_behind(bench, told=True)
    (directory / "stdout").write_text("last words\n")
    away = bench.dir / "away"
    (bench.dir / "store").rename(away)
    (bench.dir / "store").write_text("in the way")
    tasks = bench.tasks()
    await tasks.take_over()
    await asyncio.wait_for(tasks.kill_all("its slice has ended"), PATIENCE)

    assert (directory / "stdout").exists()
