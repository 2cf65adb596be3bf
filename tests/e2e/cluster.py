"""A real cluster for tests, handled as its users handle it: by the command line, in processes of
its own.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

import psutil

from iris.client.operate.controller import last_lines
from iris.processes.process import IRIS, free_ports
from tests.e2e.forked import Forked, can_fork

T = TypeVar("T")

#: Whose jobs the tests' jobs are, whoever runs the tests.
USER = "ada"
#: In the environment of every cluster's processes, and so of every agent; no program may see it.
SECRET = "AGENTS_SECRET"
#: How long a command may take before the test gives up on it.
PATIENCE = 120.0


def eventually(look: Callable[[], T], within: float = PATIENCE, every: float = 0.1) -> T:
    """What `look` returns, once that is true; fails when it has not become so within some
    seconds.
    """
    deadline = time.monotonic() + within
    while True:
        if seen := look():
            return seen
        assert time.monotonic() < deadline, f"not within {within:g} s; last seen: {seen!r}"
        time.sleep(every)


def free_port() -> int:
    """Returns a free port that has another free one after it: the control plane's Temporal server
    takes both.
    """
    while True:
        port, _ = free_ports()
        if free_ports((port, port + 1)) == (port, port + 1):
            return port


def _as_in_a_terminal() -> None:
    """A shell that starts the tests in the background has them, and what they start, ignore
    Ctrl-C.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)


class Ran(NamedTuple):
    """A command that has ended."""

    code: int
    raw_out: bytes
    err: str

    @property
    def out(self) -> str:
        return self.raw_out.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.raw_out)


class Running:
    """A command that has been started. Its output goes to files, so that no pipe can fill up.

    Args:
        merged: what it says on standard error is among its output, as a terminal shows it.
        umask: of the command; -1: that of the tests.
    """

    process: subprocess.Popen[bytes] | Forked

    def __init__(
        self,
        arguments: Sequence[str],
        env: dict[str, str],
        cwd: Path,
        directory: Path,
        *,
        merged: bool = False,
        umask: int = -1,
    ) -> None:
        #: The directory of its output.
        self.said = Path(tempfile.mkdtemp(prefix="command-", dir=directory))
        self._out, self._err = self.said / "out", self.said / "err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            both = out if merged else err
            if tuple(arguments[:3]) == IRIS and can_fork(arguments[3:], env):
                self.process = Forked(
                    arguments[3:], env=env, cwd=cwd, stdout=out, stderr=both, umask=umask
                )
            else:
                self.process = subprocess.Popen(
                    arguments,
                    env=env,
                    cwd=cwd,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=both,
                    start_new_session=True,
                    preexec_fn=_as_in_a_terminal,
                    umask=umask,
                )

    @property
    def out(self) -> str:
        return self._out.read_text(errors="replace")

    @property
    def err(self) -> str:
        return self._err.read_text()

    def interrupt(self) -> None:
        """What Ctrl-C does."""
        self.process.send_signal(signal.SIGINT)

    def ends(self, code: int | None = 0, within: float = PATIENCE) -> Ran:
        """Wait for its end. No command may ever show a user a traceback.

        Args:
            code: the exit code it must have; None: any.
        """
        try:
            ended_with = self.process.wait(within)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(
                f"{self.process.args} did not end within {within:g}"
                f" s\n{self.out[-2000:]}\n{self.err}"
            ) from None
        ran = Ran(ended_with, self._out.read_bytes(), self.err)
        assert "Traceback" not in ran.err, ran.err
        assert code is None or ran.code == code, (
            f"{self.process.args} ended with {ran.code}, not {code}:\n{ran.err}"
        )
        return ran


class Cluster:
    """One local cluster with a state directory of its own, or none that runs yet.

    Args:
        home: a new directory with a short name.
        umask: of every command that is run; -1: that of the tests.
    """

    #: Those that run now; a test that fails shows their logs.
    running: ClassVar[list["Cluster"]] = []

    def __init__(
        self, home: Path, name: str = "local", options: Sequence[str] = (), *, umask: int = -1
    ) -> None:
        self.home = home
        self.umask = umask
        self.name = name
        self.options = tuple(options)
        self.work = home / "work"
        self.work.mkdir(parents=True, exist_ok=True)

    def last_log_lines(self, count: int = 60) -> str:
        """The newest lines of each of its logs."""
        files = sorted((self.home / "clusters" / self.name / "logs").glob("*.log"))
        return "\n".join(
            f"-- {file.name}\n{last_lines(file.read_text(errors='replace'), count)}"
            for file in files
        )

    def cancel_jobs_since(self, then: float) -> None:
        """Cancel the jobs that were submitted since then, if the cluster answers.

        Args:
            then: in seconds since the epoch.
        """
        with suppress(AssertionError):
            since = f"{time.time() - then + 1:.0f}s"
            found = self.iris("jobs", "--since", since, "--json", code=None, within=30)
            if found.code == 0 and (ids := [each["id"] for each in found.json]):
                self.iris("cancel", *ids, code=None, within=30)

    # -- its life
    # ----------------------------------------------------------------------------------------------

    def start(self) -> "Cluster":
        self.iris(
            "cluster",
            "start",
            "--local",
            "-d",
            "--name",
            self.name,
            *self.options,
            within=2 * PATIENCE,
        )
        return self

    def stop(self) -> None:
        self.iris("cluster", "stop", self.name, "--yes")

    @property
    def address(self) -> str:
        """Where its Temporal service is."""
        record = json.loads((self.home / "clusters" / self.name / "cluster.json").read_text())
        return str(record["address"])

    def processes(self) -> list[psutil.Process]:
        """Every process that belongs to this state directory: started with it, or, as programs are,
        in it.
        """
        return processes_of(self.home)

    def processes_with(self, *words: str) -> list[psutil.Process]:
        """Those that have all these words in their command lines; those that end meanwhile are
        none.
        """
        return [process for process in self.processes() if set(words) <= set(_command(process))]

    def pid(self, *words: str) -> int | None:
        """The process of this cluster that has all these words in its command line, if there is
        one.
        """
        return next((process.pid for process in self.processes_with(*words)), None)

    def kill(self, *words: str) -> int:
        """`kill -9` the process with these words in its command line, and wait until it is dead: a
        busy machine takes a moment for that. Returns its number.
        """
        pid = self.pid(*words)
        assert pid is not None, f"no process has {words} in its command line"
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: not alive(pid), every=0.01)
        return pid

    def crash(self, host: str) -> None:
        """A restart of the machine, as far as agents can tell: the agent is gone, and the next one
        begins another life.
        """
        (life,) = (self.home / "clusters").glob(f"*/machines/*/hosts/{host}/incarnation.json")
        with self.no_machine_starts():
            self.kill("agent", host)
            life.unlink()

    @contextmanager
    def no_machine_starts(self) -> Iterator[None]:
        """The supervisor sleeps meanwhile, who starts agents: what is asked for is on its way for
        as long.
        """
        supervisor = psutil.Process(self.pid("cluster", "start"))
        supervisor.suspend()
        try:
            yield
        finally:
            supervisor.resume()

    def agents(self, slice_id: str) -> list[psutil.Process]:
        """The agents that run for a slice."""
        return self.processes_with("agent", slice_id)

    def clear(self) -> None:
        """After a test: end whatever it has left."""
        for process in self.processes():
            with suppress(psutil.Error):
                process.kill()

    # -- commands
    # ----------------------------------------------------------------------------------------------

    def begin(
        self, *arguments: str, cwd: Path | None = None, merged: bool = False, **env: str
    ) -> Running:
        """Start `iris ARGUMENTS…`."""
        # With its modules compiled once, as users have them: hundreds of commands are run here.
        dropped = ("IRIS_", "TEMPORAL_", "PYTHONDONTWRITEBYTECODE")
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(dropped)}
        own = {"IRIS_STATE_DIR": str(self.home), "IRIS_USER": USER, SECRET: "not for programs"}
        return Running(
            [*IRIS, *arguments],
            inherited | own | env,
            cwd or self.work,
            self.home,
            merged=merged,
            umask=self.umask,
        )

    def iris(
        self,
        *arguments: str,
        code: int | None = 0,
        within: float = PATIENCE,
        cwd: Path | None = None,
        **env: str,
    ) -> Ran:
        """Run `iris ARGUMENTS…` to its end."""
        return self.begin(*arguments, cwd=cwd, **env).ends(code, within)

    def submit(self, name: str, *arguments: str) -> dict[str, str]:
        """Submit a job without following it. The arguments are options, `--`, and the command."""
        submitted: dict[str, str] = self.iris("submit", "-n", name, "--json", *arguments).json
        return submitted

    def status(self, job: str) -> dict[str, Any]:
        found: dict[str, Any] = self.iris("status", job, "--json").json
        return found

    def logs(self, job: str, *arguments: str) -> list[str]:
        return self.iris("logs", job, *arguments).out.splitlines()

    def host_ids(self) -> list[str]:
        return [host["id"] for host in self.iris("host", "list", "--json").json]

    def hosts(self) -> dict[str, dict[str, Any]]:
        """The hosts that take work, as the scheduler's book has them, by their ids."""
        shown = self.query("scheduler", "snapshot", "{}")
        hosts = [view["host"] for view in shown["hosts"] or ()]
        return {host["id"]: host for host in sorted(hosts, key=lambda host: str(host["id"]))}

    def only_host(self) -> str:
        """The host of a cluster that has one: the autoscaler names it."""
        (host,) = self.hosts()
        return host

    def slices(self, group: str | None = None) -> dict[str, list[str]]:
        """The hosts that take work by the ids of their slices, in the order of their numbers.

        Args:
            group: only those of this scale group.
        """
        found: dict[str, list[str]] = {}
        for host_id, host in self.hosts().items():
            if group in (None, host["attributes"].get("scale-group")):
                found.setdefault(host["slice_id"], []).append(host_id)
        return found

    def slice(self, slice_id: str) -> dict[str, Any] | None:
        """What the workflow of a slice says, also of one that has ended; None: there never was
        one.
        """
        if not self.temporal(
            "workflow", "list", "--query", f"WorkflowId = '{self.name}/slice/{slice_id}'"
        ):
            return None
        status: dict[str, Any] = self.query(f"slice/{slice_id}", "status")
        return status

    def machines(self) -> list[str]:
        """The slices of which there is anything on this machine."""
        directory = self.home / "clusters" / self.name / "machines"
        return sorted(path.name for path in directory.glob("*"))

    def free_cpu(self) -> list[float]:
        return [host["free"]["cpu"] for host in self.iris("host", "list", "--json").json]

    def temporal(self, *arguments: str) -> Any:
        """What Temporal's own command line says, as JSON."""
        command = [
            str(Path(sys.executable).with_name("temporal")),
            *arguments,
            "--address",
            self.address,
            "--output",
            "json",
        ]
        return json.loads(
            subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE).stdout
            or b"null"
        )

    def observation(self) -> set[str]:
        """When the latest observation of the fleet ended, if the autoscaler waits for its news.
        Each is an attempt.
        """
        shown = self.temporal("workflow", "describe", "--workflow-id", f"{self.name}/autoscaler")
        pending = [
            each
            for each in shown.get("pendingActivities", [])
            if each["activityType"]["name"] == "observe_fleet"
        ]
        return {
            each["lastAttemptCompleteTime"] for each in pending if "lastAttemptCompleteTime" in each
        }

    def query(self, workflow: str, name: str, given: str = "") -> Any:
        """What a workflow of the cluster answers."""
        about = [
            "--workflow-id",
            f"{self.name}/{workflow}",
            "--name",
            name,
            *(["--input", given] if given else []),
        ]
        (answer,) = self.temporal("workflow", "query", *about)["queryResult"]
        return answer

    def terminate(self, job: str) -> None:
        """What the Terminate button of the Web UI does."""
        workflow = f"{self.name}/job/{USER}/{job}"
        command = [
            str(Path(sys.executable).with_name("temporal")),
            "workflow",
            "terminate",
            "--workflow-id",
            workflow,
        ]
        subprocess.run(
            [*command, "--address", self.address], check=True, capture_output=True, timeout=PATIENCE
        )

    # -- files that programs and tests meet at
    # ---------------------------------------------------------------------------------

    def file(self, name: str) -> Path:
        return self.work / name

    def lines(self, name: str) -> list[str]:
        """The lines of a file, none while it does not exist."""
        return self.file(name).read_text().splitlines() if self.file(name).exists() else []

    def there_is(self, name: str, within: float = PATIENCE) -> None:
        """Wait until a program has made this file."""
        eventually(self.file(name).exists, within, every=0.02)


def processes_of(directory: Path) -> list[psutil.Process]:
    """Every process whose directory, command line or environment names this directory, or a path
    below it.
    """
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            texts = (process.cwd(), *process.cmdline(), *process.environ().values())
            if process.status() != psutil.STATUS_ZOMBIE and any(
                str(directory) in text for text in texts
            ):
                found.append(process)
    return found


def _command(process: psutil.Process) -> list[str]:
    """The command line of a process; of one that has just ended, none."""
    with suppress(psutil.Error):
        return list(process.cmdline())
    return []


def until(name: str) -> str:
    """Shell text that waits until the file is there. Each look costs a process, so there are few: a
    score of programs may wait at once.
    """
    return f"while [ ! -e {name} ]; do sleep 0.2; done"


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and that nobody has asked about does not."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@contextmanager
def a_home() -> Iterator[Path]:
    """A state directory with a short name."""
    with tempfile.TemporaryDirectory(prefix="iris-", ignore_cleanup_errors=True) as directory:
        yield Path(directory)


@contextmanager
def a_cluster(*options: str, name: str = "local") -> Iterator[Cluster]:
    """A cluster that runs; afterwards it does not, whatever the test did to it."""
    with a_home() as home:
        cluster = Cluster(home, name, options)
        Cluster.running.append(cluster)
        try:
            yield cluster.start()
        finally:
            Cluster.running.remove(cluster)
            try:
                cluster.iris("cluster", "stop", name, "--yes", code=None)
            finally:
                cluster.clear()
