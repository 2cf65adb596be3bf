"""The handle of a fake Google: starts its process, triggers events, and cleans up."""

import contextlib
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import psutil

#: The root of the repository: what `tests.…` is found from.
ROOT = Path(__file__).parents[3]
#: A start, on a machine that does other things too.
PATIENCE = 60.0


class FakeGoogle:
    """A cloud of its own, from `start` to `close`; or as a context.

    Args:
        boot: hosts boot: their startup scripts run, and what these start.
        directory: where it keeps everything; kept at the end. None: a new one, which is removed.
    """

    def __init__(self, boot: bool = False, directory: Path | None = None) -> None:
        self._kept = directory is not None
        # Short: sockets of hosts are in it.
        self.directory = directory or Path(tempfile.mkdtemp(prefix="gg"))
        self._boot = boot
        self._process: subprocess.Popen[str] | None = None
        #: Endpoints, for `platform.gcp.endpoints`.
        self.tpu = self.compute = self.control = ""

    def start(self) -> Self:
        """Raises:
        RuntimeError: it does not start; with its last words.
        """
        command = [
            sys.executable,
            "-m",
            "tests.fakes.google",
            "--state",
            str(self.directory / "state"),
            "--owner",
            str(os.getpid()),
        ]
        if not self._kept:
            command += ["--scratch", str(self.directory)]
        if self._boot:
            command += ["--boot", str(self.directory / "h")]
        if self.tpu:
            command += [
                "--tpu-port",
                str(urlsplit(self.tpu).port),
                "--http-port",
                str(urlsplit(self.compute).port),
            ]
        log = self.directory / "log"
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        assert self._process.stdout is not None
        watchdog = threading.Timer(PATIENCE, self._process.kill)
        watchdog.start()
        line = self._process.stdout.readline()
        watchdog.cancel()
        if not line:
            raise RuntimeError(f"the fake Google does not start: {log.read_text()[-2000:]}")
        said = json.loads(line)
        self.tpu, self.compute, self.control = said["tpu"], said["compute"], said["control"]
        return self

    def close(self) -> None:
        """The end of everything: the process, and whatever its hosts have started."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()
        end_machines(self.directory / "h")
        if not self._kept:
            shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # -- its process

    def kill(self) -> None:
        """SIGKILL. Its hosts go on: a cloud that does not answer has not lost its machines."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def restart(self) -> None:
        """After `kill`, or in its place; on the same ports, with the same state."""
        if self._process is not None and self._process.poll() is None:
            self.kill()
        self.start()

    def ask(self, verb: str, /, **arguments: Any) -> Any:
        """Any verb of the control (`control.py`).

        Raises:
            RuntimeError: it does not understand.
        """
        connection = http.client.HTTPConnection(urlsplit(self.control).netloc, timeout=PATIENCE)
        try:
            connection.request("POST", f"/control/{verb}", json.dumps(arguments))
            answer = connection.getresponse()
            body = json.loads(answer.read())
        finally:
            connection.close()
        if answer.status != 200:
            raise RuntimeError(body["error"])
        return body

    # -- faults of calls. Methods are `CreateNode`, `GetOperation`, `instances.insert`,
    # `zoneOperations.get`, …, or patterns of these; `match` is a part of the path that a call is
    # about. `times=None`: from now on.

    def fail(
        self,
        method: str,
        status: str | int,
        times: int | None = 1,
        details: str = "",
        message: str = "",
        match: str = "",
        retry_after: int = 0,
    ) -> None:
        """Calls are refused, and do nothing. The status is Google's name or one of HTTP; `details`:
        `quota`, `rate`, or a reason of Compute.
        """
        arguments = {
            "status": str(status),
            "details": details,
            "message": message,
            "retry_after": retry_after,
        }
        self.ask("fault", method=method, does="fail", times=times, match=match, **arguments)

    def commit_then_drop(self, method: str, times: int | None = 1, match: str = "") -> None:
        """Calls do what they should, and the connection is cut before the answer."""
        self.ask("fault", method=method, does="drop", times=times, match=match)

    def latency(
        self, method: str, seconds: float, times: int | None = None, match: str = ""
    ) -> None:
        """Calls take so long, in real seconds."""
        self.ask("fault", method=method, does="latency", seconds=seconds, times=times, match=match)

    def hang(self, method: str, times: int | None = 1, match: str = "") -> None:
        """Calls do nothing, and are never answered."""
        self.ask("fault", method=method, does="hang", times=times, match=match)

    def rate_limit(
        self,
        method: str,
        per_minute: int,
        status: str | int = 429,
        details: str = "rate",
        retry_after: int = 0,
    ) -> None:
        """More calls in a minute than this are refused."""
        arguments = {
            "status": str(status),
            "details": details,
            "retry_after": retry_after,
            "limit": per_minute,
        }
        self.ask("fault", method=method, does="rate", **arguments)

    def operation(
        self,
        what: str,
        times: int | None = 1,
        verb: str = "create",
        code: int = 8,
        message: str = "",
        match: str = "",
    ) -> None:
        """What becomes of the next operations: `stuck`, `lost`, `error`, `lingers` (an error, and
        the node stays as it is), `done_before_return`, `mistyped` (delete of a queued resource).
        For Compute the verb is `insert`, the code one of HTTP and the message Google's name of the
        error.
        """
        self.ask(
            "operation", what=what, times=times, verb=verb, code=code, message=message, match=match
        )

    def clear(self) -> None:
        """No such faults any more, no zone down, and whatever there is is shown."""
        self.ask("clear")

    # -- how the cloud is

    def zones(self, *names: str) -> None:
        """These exist beside Google's."""
        self.ask("zones", names=names)

    def capacity(
        self, zone: str, type: str, n: int | None, tier: str = "*", project: str = "*"
    ) -> None:
        """So many slices (instances) of the type fit into the zone; `*` means any, None no
        limit.
        """
        self.ask("capacity", zone=zone, type=type, n=n, tier=tier, project=project)

    def quota(
        self, family: str, tier: str, scope: str, limit: int | None, project: str = "*"
    ) -> None:
        """So many chips (vCPUs) of a family (`v5litepod`, `n2`) and tier (`spot`, `on-demand`,
        `reserved`) in a zone or a region.
        """
        self.ask("quota", family=family, tier=tier, scope=scope, limit=limit, project=project)

    def zone_down(self, zone: str, down: bool = True) -> None:
        """Calls about it fail with 503, lists of all zones say that it is unreachable."""
        self.ask("zone_down", zone=zone, down=down)

    def offer(self, zone: str, *types: str) -> None:
        """The zone has these types only."""
        self.ask("offer", zone=zone, types=types)

    def boot_time(self, seconds: float | None, name: str = "") -> None:
        """From a create to machines, in the cloud's seconds; None: never. By name, type or zone, or
        of all others.
        """
        self.ask("boot_time", seconds=seconds, name=name)

    def delete_time(self, seconds: float | None, name: str = "") -> None:
        """From a delete until nothing is left; None: never."""
        self.ask("delete_time", seconds=seconds, name=name)

    def page_size(self, n: int, empty_pages: int = 0, duplicates: bool = False) -> None:
        """Pages are no longer than this; so many empty ones come first; the last of a page comes
        again in the next.
        """
        self.ask("knobs", page_size=n, empty_pages=empty_pages, duplicates=duplicates)

    def stale_lists(self, ghosts: float = 0.0, lag: float = 0.0) -> None:
        """What is gone is listed for so many seconds more; what is new is not listed for so
        many.
        """
        self.ask("knobs", ghosts=ghosts, lag=lag)

    def slow_to_show(self, seconds: float) -> None:
        """For so many seconds calls do not find what was just created; its name is taken all the
        same.
        """
        self.ask("knobs", unseen=seconds)

    def stockout_time(self, seconds: float) -> None:
        """From a create to the word that there is no capacity."""
        self.ask("knobs", stockout_time=seconds)

    def preemption_notice(self, seconds: float) -> None:
        """From the notice to the end, where `preempt` does not say."""
        self.ask("knobs", preemption_notice=seconds)

    def advance(self, seconds: float) -> None:
        """So much time passes at once."""
        self.ask("advance", seconds=seconds)

    def run(self, speed: float) -> None:
        """From now on so many of its seconds pass in one."""
        self.ask("run", speed=speed)

    def now(self) -> float:
        """Its time, in seconds since 1970."""
        return float(self.ask("now"))

    # -- what happens to resources

    def node(
        self,
        name: str,
        state: str | int | None = None,
        endpoints: int | list[str] | None = None,
        health: int | None = None,
        vanish: bool = False,
        note: str = "",
    ) -> None:
        """A node (or instance) becomes this by itself; `endpoints` may be said before it exists.
        States may be any number.
        """
        self.ask(
            "node",
            name=name,
            state=state,
            endpoints=endpoints,
            health=health,
            vanish=vanish,
            note=note,
        )

    def queued(self, name: str, state: str | int, note: str = "") -> None:
        """A queued resource becomes this by itself."""
        self.ask("queued", name=name, state=state, note=note)

    def preempt(self, name: str, notice: float | None = None) -> None:
        """Google takes a node, an instance or the nodes of a queued resource back: hosts are told
        at once, and lose their power after the notice (30 of the cloud's seconds).
        """
        self.ask("preempt", name=name, notice=notice)

    def reboot(self, name: str, readdress: bool = False) -> None:
        """Hosts boot anew, perhaps with other addresses."""
        self.ask("reboot", name=name, readdress=readdress)

    def say(self, name: str, text: str) -> None:
        """An instance of this name, or all of this type, say this on their serial consoles, where
        none really boots.
        """
        self.ask("say", name=name, text=text)

    def refuse_boot(self, host: str) -> None:
        """`NAME-w-N` (or `NAME`, where there is one host) never boots."""
        self.ask("refuse_boot", host=host)

    def seed_foreign(
        self,
        name: str,
        project: str,
        zone: str,
        kind: str = "node",
        labels: dict[str, str] | None = None,
        **more: Any,
    ) -> None:
        """Something of kind `node`, `queued` or `instance` that was there before. Who touches it is
        told of by `check`, unless `foreign=False`. `type` and `state` as with Google.
        """
        self.ask(
            "seed_foreign",
            name=name,
            project=project,
            zone=zone,
            kind=kind,
            labels=labels or {},
            **more,
        )

    # -- looking

    def audit(self) -> list[dict[str, Any]]:
        """Everything that has happened: `what` is call, created, planted, deleted or vanished."""
        return list(self.ask("audit"))

    def calls(self, method: str = "", match: str = "") -> list[str]:
        """Methods that were called, in order; of one method: the paths that it was called with.
        `match`: a part of the path.
        """
        made = [each for each in self.audit() if each["what"] == "call" and match in each["path"]]
        return (
            [each["path"] for each in made if each["method"] == method]
            if method
            else [each["method"] for each in made]
        )

    def created(self, kind: str = "", match: str = "") -> list[str]:
        """Paths of everything that was ever created."""
        made = [
            each
            for each in self.audit()
            if each["what"] == "created" and kind in ("", each["kind"])
        ]
        return [each["path"] for each in made if match in each["path"]]

    def alive(self, project: str = "") -> list[str]:
        """Paths of what there is, whatever its state, but for what is somebody else's."""
        return [each["path"] for each in self.resources(project) if not each["foreign"]]

    def resources(self, project: str = "") -> list[dict[str, Any]]:
        """What there is, with all that is kept of it."""
        return list(self.ask("alive", project=project))

    def check(self, project: str = "") -> None:
        """Raises:
        AssertionError: the books do not balance, or somebody did what nobody should.
        """
        wrong = self.ask("check", project=project)
        assert not wrong, "\n".join(wrong)

    def hosts(self, name: str) -> list[dict[str, Any]]:
        """Its booted hosts: worker, pid, directory, alive."""
        return list(self.ask("hosts", name=name))

    def console(self, name: str, worker: int = 0) -> str:
        """What a host has written on its serial console."""
        directory = next(
            (each["directory"] for each in self.hosts(name) if each["worker"] == worker), None
        )
        path = Path(directory, "console.log") if directory else Path(os.devnull)
        return path.read_text(errors="replace") if path.exists() else ""

    def host_metadata(self, name: str, worker: int, path: str, value: str) -> None:
        """A value of a host's metadata server changes."""
        self.ask("host_metadata", name=name, worker=worker, path=path, value=value)


def end_machines(directory: Path, patience: float = 15.0) -> None:
    """All hosts below the directory lose their power; returns when nothing of them runs."""
    machines = [
        each for each in psutil.process_iter(["cmdline"]) if _below(each.info["cmdline"], directory)
    ]
    for each in machines:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.send_signal(signal.SIGTERM)
    _, left = psutil.wait_procs(machines, patience)
    for each in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in each.children(recursive=True):
                child.kill()
            each.kill()


def _below(command: list[str] | None, directory: Path) -> bool:
    return (
        command is not None
        and "tests.fakes.google.machine" in command
        and command[-1].startswith(f"{directory}/")
    )
