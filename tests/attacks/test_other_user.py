"""A job that runs as a process tries to reach its agent, its host, and other jobs of the host. Each
has a user of its own.
"""

import asyncio
import contextlib
import fcntl
import os
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from iris.activities.host.attempt.attempt import Attempt
from iris.activities.host.attempt.host_context import HostContext
from iris.activities.host.attempt.lifecycle import Event
from iris.activities.host.environment.set_up import Places, ProgramFiles, Ready, set_up
from iris.activities.host.environment.steps import _add_scripts
from iris.activities.host.files.caches import Cache
from iris.activities.host.machine.ports import Ports
from iris.activities.host.runtimes.base import HostFault, JobFault
from iris.activities.host.runtimes.cleanup import trees
from iris.activities.host.runtimes.cleanup.leftover_processes import QUARANTINE, AttemptFile
from iris.activities.host.runtimes.cleanup.remains import empty_quarantine, find
from iris.activities.host.runtimes.process import job_users
from iris.activities.host.runtimes.process.exec import ProcessCommand
from iris.activities.host.runtimes.process.job_users import PASSABLE, JobUsers
from iris.activities.host.runtimes.process.runtime import ProcessRuntime
from iris.messages.exec import ExecRequest, Frame
from iris.model.host.resources import Resources
from iris.model.job.attempts import TaskOutcome
from iris.model.job.environments import EnvironmentSpec
from iris.model.states import TaskState
from iris.storage.object_store import Store
from tests.activities.host.attempt.test_attempt import Server, a_run
from tests.activities.host.environment.test_setup import a_wheel
from tests.builders import a_host
from tests.e2e.cluster import alive, eventually

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can start processes of other users"
)

PATIENCE = 60.0
#: Tests of several processes share the machine: the uids of each are its own.
UIDS = range(200_000 + os.getpid() % 10_000 * 100, 200_000 + os.getpid() % 10_000 * 100 + 100)


class Machine:
    """A host whose agent is this process, with its state closed to others, and the directory of its
    jobs open to them.
    """

    def __init__(self, state: Path, jobs: Path) -> None:
        self.dir, self.server = state, Server()
        self.store = Store((state / "store").as_uri(), create=True)
        self.users = JobUsers(jobs, UIDS)
        assert self.users.make_directory() == ""
        (state / "cache" / "bundles").mkdir(parents=True)
        state.chmod(0o700)

    def attempt(self, name: str, script: str, **changes: Any) -> Attempt:
        task = a_run("/bin/sh", "-c", script, outputs=f"outputs/{name}", **changes)
        context = HostContext(
            client=self.server.client,
            store=self.store,
            cluster="local",
            host=a_host("h1"),
            directory=self.dir,
            cache_dir=self.dir / "cache",
            base_env={"PATH": "/usr/bin:/bin", "HOME": "/root"},
            job_users=self.users,
        )
        return Attempt(
            context, AttemptFile.of(task, b"token", datetime.now(UTC)), self.dir / "attempts" / name
        )

    async def run(self, script: str, name: str = "job", **changes: Any) -> TaskOutcome:
        await asyncio.wait_for(self.attempt(name, script, **changes).run(), PATIENCE)
        return self.server.told[-1]

    def kept(self, name: str = "job") -> dict[str, str]:
        """What a job has left in its outputs."""
        root = self.dir / "store" / "outputs" / name
        return {
            str(path.relative_to(root)): path.read_text()
            for path in root.rglob("*")
            if path.is_file()
        }

    @contextlib.asynccontextmanager
    async def beside(
        self, name: str, script: str = "echo secret > mine; exec sleep 1000"
    ) -> AsyncIterator[Attempt]:
        """Another job, which runs for as long as the block."""
        attempt = self.attempt(name, script)
        run = asyncio.create_task(attempt.run())
        mine = self.users.directory / "attempts" / name / "work" / "mine"
        try:
            await asyncio.to_thread(
                eventually, lambda: mine.exists() and attempt.running is not None, PATIENCE, 0.02
            )
            yield attempt
        finally:
            (
                os.kill(attempt.running.pid, 9)
                if attempt.running is not None and attempt.running.pid
                else None
            )
            await asyncio.wait_for(run, PATIENCE)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    # Not below tmp_path, which other users cannot reach.
    jobs = Path(tempfile.mkdtemp(prefix="iris-jobs-", dir="/var/tmp"))
    jobs.chmod(0o711)
    yield Machine(tmp_path, jobs)
    trees.remove(jobs)


# -- the agent and its files
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "attack",
    [
        "ls {state}",
        "cat {state}/attempts/job/state.json",
        "cat {state}/attempts/job/launch.json",
        "echo 0 0 > {state}/attempts/job/orders",
        "echo x > {state}/attempts/job/stdout",
        "echo x > {state}/cache/bundles/x",
        "ls {state}/cache/bundles",
        "ls {state}/store",
        "cat /proc/{agent}/environ",
        "ls /proc/{agent}/fd/",
        "cat /proc/{agent}/root/etc/hostname",
        "cat /proc/$PPID/environ",
        "kill -9 {agent}",
        "kill -STOP {agent}",
        "kill -9 $PPID",
        "kill -STOP $PPID",
        "cat /etc/shadow",
        "ls {jobs}/attempts",
        "touch {jobs}/x {jobs}/attempts/x {jobs}/environments/x",
        "flock -n {jobs}/lock true",
        "mv $IRIS_WORKDIR $IRIS_WORKDIR/../outputs-too",
    ],
)
async def test_a_job_cannot_read_write_or_signal_what_is_the_agents(
    machine: Machine, attack: str
) -> None:
    """Launches and states hold secrets and tokens, and whoever changes them or stops the agent
    decides over other jobs.
    """
    attack = attack.format(state=machine.dir, agent=os.getpid(), jobs=machine.users.directory)
    outcome = await machine.run(f"{attack} && exit 0; exit 33")

    assert (outcome.state, outcome.exit_code) == (TaskState.FAILED, 33)


async def test_a_job_has_no_right_of_the_agents_group_and_gets_none_by_a_program_with_the_setuid_bit(
    machine: Machine,
) -> None:
    """`su` and `sudo` would give root back, and so would a supplementary group: that of the
    container engine, for instance.
    """
    script = (
        "id -u; id -G; grep -E 'NoNewPrivs|CapEff|CapPrm|CapAmb' /proc/self/status; echo $HOME"
        " $TMPDIR; pwd"
    )
    await machine.run(f"({script}) > $IRIS_OUTPUT_DIR/said")
    uid, groups, *lines, homes, workdir = machine.kept()["said"].splitlines()
    files = machine.users.directory / "attempts" / "job"

    assert int(uid) in UIDS
    assert groups == uid
    assert {line.split()[-1] for line in lines} == {"0000000000000000", "1"}
    assert (homes, workdir) == (f"{files / 'home'} {files / 'tmp'}", str(files / "work"))


async def test_a_job_cannot_connect_to_a_socket_of_root_such_as_the_container_engines(
    machine: Machine,
) -> None:
    """Whoever reaches the engine is root on the host."""
    path = machine.users.directory / "engine.sock"
    with socket.socket(socket.AF_UNIX) as engine:
        engine.bind(str(path))
        engine.listen()
        path.chmod(0o660)
        connect = (
            "import socket,sys\nfor path in sys.argv[1:]:\n  try:"
            " socket.socket(socket.AF_UNIX).connect(path)\n"
        )
        connect += "  except (PermissionError, FileNotFoundError): pass\n  else: sys.exit(path)\n"
        outcome = await machine.run(f"/usr/bin/python3 -c '{connect}' {path} /var/run/docker.sock")

    assert outcome.state is TaskState.SUCCEEDED


async def test_a_jobs_working_directory_is_entered_with_its_own_rights(machine: Machine) -> None:
    """With the agent's rights, `--workdir` would open a directory whose parent is closed to the
    job.
    """
    inside = machine.dir / "closed" / "open"
    inside.mkdir(parents=True)
    (machine.dir / "closed").chmod(0o700)
    inside.chmod(0o777)
    outcome = await machine.run("touch here", workdir=str(inside))

    assert (outcome.state, outcome.exit_code) == (TaskState.FAILED, 126)
    assert "the working directory cannot be used" in outcome.reason
    assert re.search(
        r"user of its own, with uid \d+: let all users .*--workspace.*--run-as root", outcome.reason
    )
    assert list(inside.iterdir()) == []


async def test_files_of_others_are_not_uploaded_as_outputs(machine: Machine) -> None:
    """The agent, which may read everything, uploads them."""
    script = (
        "cd $IRIS_OUTPUT_DIR && echo mine > mine; ln -s /etc/shadow soft; ln /etc/shadow hard; ln"
        " -s mine also; true"
    )
    await machine.run(script)

    assert machine.kept() == {"mine": "mine\n", "also": "mine\n"}


async def test_outputs_of_root_in_a_jobs_directory_are_not_uploaded(
    machine: Machine, tmp_path: Path
) -> None:
    """As a hard link would be, which some systems let every user make to any file."""
    async with machine.beside(
        "other", "echo > mine; while [ ! -e stop ]; do sleep 0.02; done"
    ) as attempt:
        files = job_users.files_of(machine.dir / "attempts" / "other")
        (files / "outputs" / "hard").write_text("of root")
        (files / "work" / "stop").touch()
        await asyncio.to_thread(eventually, lambda: attempt.running is None, PATIENCE, 0.02)

    assert machine.kept("other") == {}


async def test_a_checkpoint_belongs_to_the_user_of_the_attempt_that_gets_it_and_leads_to_nothing_of_others(
    machine: Machine,
) -> None:
    """Each attempt has another uid. What the first has put there is neither read nor written with
    the agent's rights.
    """
    saves = {"checkpoints": "checkpoints/ada/train/run/0"}
    links = "ln -s /etc/shadow soft; ln /etc/shadow hard; true"
    await machine.run(
        f"cd $IRIS_CHECKPOINT_DIR && mkdir d && echo mine > d/own && chmod 600 d/own && {links}",
        "first",
        **saves,
    )
    looks = (
        "stat -c %u . d d/own | uniq | wc -l > $IRIS_OUTPUT_DIR/owners; readlink soft >"
        " $IRIS_OUTPUT_DIR/link; cat soft"
    )
    script = (
        f"cd $IRIS_CHECKPOINT_DIR && echo more >> d/own && cp d/own $IRIS_OUTPUT_DIR && {looks}"
    )
    outcome = await machine.run(script, "second", attempt=2, **saves)

    assert machine.kept("second") == {
        "own": "mine\nmore\n",
        "owners": "1\n",
        "link": "/etc/shadow\n",
    }
    assert "soft: Permission denied" in outcome.last_lines
    stored = [path.read_text() for path in (machine.dir / "store" / "checkpoints").rglob("files/*")]
    assert stored == ["mine\n"]


# -- other jobs
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "attack",
    [
        "cat {files}/work/mine",
        "echo x > {files}/work/mine",
        "ls {files}",
        "ls {files}/work",
        "cd {files}/outputs",
        "cat /proc/{pid}/environ",
        "cat /proc/{pid}/cwd/mine",
        "kill -9 {pid}",
        "kill -9 {shim}",
    ],
)
async def test_a_job_cannot_reach_another_job_of_the_host(machine: Machine, attack: str) -> None:
    """Two attempts never have one uid at a time."""
    async with machine.beside("other") as other:
        running = other.running
        assert running is not None
        files = job_users.files_of(running.directory)
        outcome = await machine.run(
            attack.format(files=files, pid=running.pid, shim=running.shim) + " && exit 0; exit 33"
        )

        assert outcome.exit_code == 33
        assert (files / "work" / "mine").read_text() == "secret\n"
        assert running.pid is not None
        assert alive(running.pid)


async def test_a_host_without_a_free_uid_refuses_a_job(machine: Machine) -> None:
    """Two jobs with one uid could reach each other, so the second has to go to another host."""
    machine.users = machine.users._replace(uids=UIDS[:1])
    async with machine.beside("other"):
        outcome = await machine.run("true")

    assert outcome.state is TaskState.WORKER_FAILED
    assert (
        "all 1 user ids for jobs (bootstrap.run_as or --run-as) are in use on this host"
        in outcome.reason
    )
    assert outcome.refused  # the host is healthy: it must not be put into quarantine


async def test_an_attempt_that_ends_while_it_gets_its_uid_does_not_keep_it(
    machine: Machine,
) -> None:
    """What the agent began in a thread goes on after a cancellation: the uid would be taken after
    all was cleared away.
    """
    directory = machine.dir / "attempts" / "job"
    attempt = machine.attempt("job", "true")
    with (machine.users.directory / "lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)  # another attempt of the machine starts at this moment
        run = asyncio.create_task(attempt.run())
        await asyncio.to_thread(
            eventually, lambda: os.path.lexists(directory / job_users.FILES), PATIENCE, 0.02
        )
        attempt.handle(Event.CANCEL, "the user cancelled it")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(run), 0.3)
    await asyncio.wait_for(run, PATIENCE)

    assert not directory.exists()
    await asyncio.get_running_loop().shutdown_default_executor()  # waits for its threads
    assert list((machine.users.directory / "attempts").iterdir()) == []


async def test_a_uid_is_not_given_again_while_files_or_processes_have_it(machine: Machine) -> None:
    """Otherwise the next job could read what the upload of the last one waits for, or be attacked
    by what it left running.
    """
    users = machine.users._replace(uids=UIDS[:1])
    attempt = machine.dir / "attempts" / "first"
    attempt.mkdir(parents=True)
    users.make_files(attempt)
    with pytest.raises(HostFault):
        users._unused()
    uid = job_users.owner_of(attempt)
    shutil.rmtree(job_users.files_of(attempt))
    process = await asyncio.create_subprocess_exec("sleep", "1000", user=uid)
    with pytest.raises(HostFault):
        users._unused()
    process.kill()
    await process.wait()

    assert users._unused() == uid


async def test_nothing_of_a_job_is_left_for_the_next_user_of_its_uid(machine: Machine) -> None:
    """Neither a process without any mark of its attempt, nor files where every user may write."""
    machine.users = machine.users._replace(uids=UIDS[:1])
    script = (
        f"umask 077; for at in /tmp /var/tmp /dev/shm; do mkdir $at/iris-{UIDS[0]}; touch"
        f" $at/iris-{UIDS[0]}/x; done; "
    )
    outcome = await machine.run(
        script + "env -i setsid sleep 1000 & echo mine > $IRIS_OUTPUT_DIR/mine", grace=timedelta(0)
    )

    assert outcome.state is TaskState.SUCCEEDED
    assert not job_users.has_processes(UIDS[0])
    assert not any(Path(at, f"iris-{UIDS[0]}").exists() for at in ("/tmp", "/var/tmp", "/dev/shm"))
    assert list((machine.users.directory / "attempts").iterdir()) == []
    assert not (machine.dir / "attempts" / "job").exists()


NEST = "import os\nfor _ in range({levels}): os.mkdir('d'); os.chdir('d')"


def deeply(levels: int = 1100) -> str:
    """A command that nests directories deeper than the interpreter recurses."""
    return f'/usr/bin/python3 -c "{NEST.format(levels=levels)}"'


async def test_nothing_of_a_job_is_left_that_nests_directories_deeper_than_a_recursion_goes(
    machine: Machine,
) -> None:
    """Its uid would stay in use for ever, its outputs would never be stored, and no agent could
    start there again.
    """
    machine.users = machine.users._replace(uids=UIDS[:1])
    shared = Path(f"/tmp/iris-{UIDS[0]}")
    script = (
        f"mkdir {shared}; (cd {shared}; {deeply()}); (cd $IRIS_OUTPUT_DIR; echo fine > mine;"
        f" {deeply()}; true); {deeply()}"
    )
    outcome = await machine.run(script)

    assert outcome.state is TaskState.SUCCEEDED
    assert machine.kept() == {"mine": "fine\n"}
    assert not shared.exists()
    assert list((machine.users.directory / "attempts").iterdir()) == []
    assert not (machine.dir / "attempts" / "job").exists()


async def test_no_memory_that_a_job_shared_is_left_for_the_next_user_of_its_uid(
    machine: Machine,
) -> None:
    """System V objects outlive their processes, and belong to whoever has the uid."""
    machine.users = machine.users._replace(uids=UIDS[:1])
    calls = (
        "libc.shmget(0x%x, 4096, 0o1600), libc.semget(0x%x, 1, 0o1600), libc.msgget(0x%x, 0o1600)"
        % ((UIDS[0],) * 3)
    )
    code = f"import ctypes; libc = ctypes.CDLL(None); assert min({calls}) >= 0"
    outcome = await machine.run(f"touch /run/lock/iris-{UIDS[0]}; /usr/bin/python3 -c '{code}'")
    left = [Path("/proc/sysvipc", kind).read_text() for kind in ("shm", "sem", "msg")]

    assert outcome.state is TaskState.SUCCEEDED
    assert not any(str(UIDS[0]) in each.split() for each in left)
    assert not Path(f"/run/lock/iris-{UIDS[0]}").exists()


#: Forks for ever; each process ends as soon as it has a child.
CHAIN = "import os\nwhile True:\n  try: os.fork() and os._exit(0)\n  except OSError: pass"
#: Kills every other process of its user, and what acts as this user.
HUNTER = (
    "import os\nos.fork() and os._exit(0)\nwhile True:\n  try: os.kill(-1, 9)\n  except OSError:"
    " pass"
)


@pytest.mark.long
@pytest.mark.parametrize("codes", [(CHAIN,) * 5, (HUNTER,)], ids=["forks", "hunts"])
def test_a_user_cannot_keep_processes_by_forking_for_ever_or_by_killing_what_kills_them(
    codes: Sequence[str],
) -> None:
    """A list of processes never has the next one, and where no cgroup limits processes, nothing
    else stops them.
    """
    uid = UIDS[-1]
    for code in codes:
        subprocess.run(["/usr/bin/python3", "-c", code], user=uid, group=uid, check=code == CHAIN)
    assert job_users.has_processes(uid)
    job_users.end_user(uid)

    eventually(lambda: not job_users.has_processes(uid), PATIENCE, 0.02)  # they are reaped


# -- beside a job
# --------------------------------------------------------------------------------------------------


async def test_a_command_beside_a_job_has_its_user_and_its_shim_has_none_of_its_variables(
    machine: Machine,
) -> None:
    """The shim of `iris exec` is root: a variable such as LD_PRELOAD would run the job's code as
    root.
    """
    heard: list[bytes] = []

    async def hear(frame: Frame) -> None:
        heard.append(frame.data)

    async with machine.beside("other", "mkdir traces; echo > mine; exec sleep 1000") as attempt:
        running = attempt.running
        assert running is not None
        traces = job_users.files_of(running.directory) / "work" / "traces"
        env = {**running.launch.env, "LD_DEBUG": "files", "LD_DEBUG_OUTPUT": str(traces / "ld")}
        request = ExecRequest(
            session="s",
            job="ada/train",
            index=0,
            argv=("sh", "-c", "id -u; pwd; echo again > /dev/stdout"),
        )
        command = ProcessCommand(request, running.launch.model_copy(update={"env": env}))
        await command.start()
        status = await asyncio.wait_for(command.run(hear), PATIENCE)
        uid = job_users.owner_of(running.directory)

        assert status == 0
        assert b"".join(heard).decode().split() == [str(uid), str(traces.parent), "again"]
        assert {path.stat().st_uid for path in traces.iterdir()} == {uid}


async def test_a_command_beside_a_job_that_removed_its_directory_says_so(machine: Machine) -> None:
    """The directory is entered as the job, where the system's error would be lost."""

    async with machine.beside("other") as attempt:
        running = attempt.running
        assert running is not None
        launch = running.launch.model_copy(update={"cwd": str(machine.users.directory / "gone")})
        command = ProcessCommand(
            ExecRequest(session="s", job="ada/train", index=0, argv=("true",)), launch
        )
        with pytest.raises(JobFault, match=r"the task's directory '.*/gone' is gone"):
            await command.start()


async def test_a_job_can_open_its_standard_output_again(machine: Machine) -> None:
    """Scripts write to /dev/stderr, which is a pipe of the shim."""
    script = (
        "echo out > /dev/stdout && echo err > /dev/stderr && touch $TMPDIR/x ~/x && echo fine >"
        " $IRIS_OUTPUT_DIR/said"
    )
    outcome = await machine.run(script)

    assert outcome.state is TaskState.SUCCEEDED
    assert machine.kept() == {"said": "fine\n"}


# -- environments
# --------------------------------------------------------------------------------------------------


class Builder:
    """Attempts whose environments are set up with the real uv, from a package that lies on this
    machine.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.wheels = machine.users.directory / "wheels"
        self.wheels.mkdir()
        self.wheels.chmod(0o755)
        a_wheel(self.wheels, "tiny")
        self.cache = Cache(machine.users.environments, 1 << 32, mode=PASSABLE)

    def attempt(self, name: str) -> tuple[ProcessRuntime, Path]:
        """Returns the runtime and the files of an attempt that has not begun."""
        directory = self.machine.dir / "attempts" / name
        directory.mkdir(parents=True)
        files = self.machine.users.make_files(directory)
        return (
            ProcessRuntime(
                f"ada/{name}:0@1/{uuid4().hex}", directory, Resources(cpu_millis=0), user="ada"
            ),
            files,
        )

    async def ready(self, runtime: ProcessRuntime, files: Path, **spec: Any) -> Ready:
        env = {"PATH": "/usr/bin:/bin", "HOME": str(files / "home"), "TMPDIR": str(files / "tmp")}
        agent_env = {"UV_FIND_LINKS": str(self.wheels), "UV_OFFLINE": "1"}
        return await set_up(
            EnvironmentSpec(sync=False, **spec),
            runtime,
            ProgramFiles(files / "work", files / "work"),
            env,
            self.cache,
            Places(files / "environment", self.machine.dir / "build"),
            agent_env=agent_env,
            pauses=(),
        )

    async def does(self, runtime: ProcessRuntime, ready: Ready, files: Path, script: str) -> int:
        """The exit status of a command in the environment."""
        return await runtime.step(
            ("/bin/sh", "-c", script), ready.env, files / "work", self.machine.dir / "build"
        )


@pytest.fixture
def builder(machine: Machine) -> Builder:
    return Builder(machine)


async def test_a_job_can_use_but_not_change_an_environment_that_others_use(
    builder: Builder,
) -> None:
    """Neither the attempt that made it nor the next one: what is in it runs in all later jobs."""
    first, files = builder.attempt("first")
    made = await builder.ready(first, files, pip=("tiny",))
    venv = made.env["VIRTUAL_ENV"]
    second, others = builder.attempt("second")
    found = await builder.ready(second, others, pip=("tiny",))

    assert found.env["VIRTUAL_ENV"] == venv
    for runtime, ready, at in ((first, made, files), (second, found, others)):
        assert await builder.does(runtime, ready, at, "python -c 'import tiny'") == 0
        module = f"{venv}/lib/python*/site-packages/tiny/__init__.py"
        for attack in (
            f"echo >> {module}",
            f"rm {module}",
            f"touch {venv}/bin/x",
            f"mv {venv} {venv}2",
            f"chmod a+w {module}",
        ):
            assert await builder.does(runtime, ready, at, f"{attack} && exit 0; exit 33") == 33, (
                attack
            )
        ready.release()


@pytest.mark.skipif(
    Path("/proc/sys/fs/protected_hardlinks").read_text().strip() != "1",
    reason="this system protects no hard links: nothing is lent",
)
async def test_uvs_cache_belongs_to_one_job_at_a_time_and_to_none_afterwards(
    builder: Builder,
) -> None:
    """It must be writable to the job that makes an environment, and whoever writes to it decides
    what others install.
    """
    first, files = builder.attempt("first")
    ready = await builder.ready(
        first, files, pip=("tiny",), setup=("pip install tiny", "touch $UV_CACHE_DIR/mine")
    )
    ready.release()
    (cache,) = (path for path in builder.cache.directory.glob("entries/uv-*/*") if path.is_dir())
    second, _ = builder.attempt("second")

    assert (cache / "mine").exists()
    assert await builder.does(first, ready, files, f"ls {cache} && exit 0; exit 33") == 33
    with job_users.lent(cache, second.owner or 0) as got:
        assert got
        assert (cache / "mine").stat().st_uid == second.owner
        with job_users.lent(cache, first.owner or 0) as also:
            assert not also
        third, mine = builder.attempt("third")
        (
            await builder.ready(third, mine, setup=(f"test $UV_CACHE_DIR != {cache}",))
        ).release()  # it does without
    assert cache.stat().st_uid == 0


@pytest.mark.skipif(
    Path("/proc/sys/fs/protected_hardlinks").read_text().strip() != "1",
    reason="this system protects no hard links: nothing is lent",
)
async def test_a_job_cannot_spoil_uvs_cache_with_directories_deeper_than_a_recursion_goes(
    builder: Builder,
) -> None:
    """The cache is given to the next job, measured and removed."""
    first, files = builder.attempt("first")
    (await builder.ready(first, files, setup=(f"cd $UV_CACHE_DIR && {deeply()}",))).release()
    second, others = builder.attempt("second")
    (await builder.ready(second, others, setup=("cd $UV_CACHE_DIR/d/d/d && touch mine",))).release()
    await builder.cache.trim(0)

    assert list(builder.cache.directory.glob("entries/*")) == []


async def test_a_link_that_a_setup_command_leaves_does_not_lead_the_agent_to_files_of_root(
    builder: Builder,
) -> None:
    """The agent adds commands to the environment between the job's own commands, and would write
    through the link.
    """
    runtime, files = builder.attempt("first")
    target = builder.machine.users.directory / "of-root"
    venv = files / "environment" / "venv"
    link = f"mkdir -p {venv}/bin; ln -s {target} {venv}/bin/uv"
    assert await builder.does(runtime, Ready({"PATH": "/usr/bin:/bin"}), files, link) == 0
    _add_scripts(venv, Path("/bin/true"), runtime.owner)

    assert not target.exists()


async def test_the_agents_thread_has_its_rights_again_after_it_acted_as_a_job(
    machine: Machine,
) -> None:
    """The thread is used again, for attempts of other users."""
    before = Path("/proc/thread-self/status").read_text().splitlines()
    with contextlib.suppress(ZeroDivisionError), job_users.acting_as(UIDS[0]):
        with pytest.raises(PermissionError):
            Path("/etc/shadow").read_text()
        raise ZeroDivisionError
    after = Path("/proc/thread-self/status").read_text().splitlines()

    def rights(lines: list[str]) -> list[str]:
        return [line for line in lines if line.startswith(("Uid", "Gid", "Groups", "Cap"))]

    assert rights(after) == rights(before)


def test_a_job_that_takes_the_name_of_the_agents_directory_for_locks_does_not_block_the_host(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Every user may create it in the directory for temporary files; then no job on the host got a
    port.
    """
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "iris-ports-0").mkdir()
    os.chown(tmp_path / "iris-ports-0", UIDS[0], UIDS[0])
    taken = Ports().take(["http"])
    for descriptor in taken.keep:
        os.close(descriptor)

    assert "http" in taken.numbers


async def test_the_user_of_an_attempt_with_an_unreadable_record_ends_and_stays_reserved(
    machine: Machine,
) -> None:
    """The files in quarantine are still that user's: another job with this uid could read them."""
    attempt = machine.attempt(
        "left",
        "env -i setsid -f /bin/sh -c 'echo mine > mine; exec /bin/sleep 1000'; exec sleep 1000",
    )
    run = asyncio.create_task(attempt.run())
    files = machine.users.directory / "attempts" / "left"
    await asyncio.to_thread(eventually, (files / "work" / "mine").exists, PATIENCE, 0.02)
    uid = files.stat().st_gid
    run.cancel()  # its agent dies
    await asyncio.wait({run})
    (machine.dir / "attempts" / "left" / "state.json").write_text("{}")
    await asyncio.to_thread(find, machine.dir / "attempts")

    assert not job_users.has_processes(uid)
    (kept,) = (machine.dir / QUARANTINE).iterdir()
    assert (job_users.files_of(kept) / "work" / "mine").read_text() == "mine\n"
    only_this = JobUsers(machine.users.directory, range(uid, uid + 1))
    (machine.dir / "attempts" / "next").mkdir()
    with pytest.raises(HostFault, match=r"user ids for jobs \(.*\) are in use"):
        only_this.make_files(machine.dir / "attempts" / "next")
    empty_quarantine(machine.dir / "attempts")
    assert only_this.make_files(machine.dir / "attempts" / "next").stat().st_gid == uid
