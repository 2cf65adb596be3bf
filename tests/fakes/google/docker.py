"""The part of Docker that startup scripts use: containers are processes of this machine, started by
this project's interpreter.

Mounts are not moved: the container's paths in the command and in the environment become those of
the host.
"""

import contextlib
import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

from tests.fakes.google.docker_words import Container, Refused, on_host, parse_run

#: In the environment of everything in a container.
MARK = "IRIS_FAKE_CONTAINER"
#: Before a restart: doubled each time, up to the last; a container that ran for long begins anew.
RESTART_FIRST, RESTART_LAST, RAN_LONG = 0.1, 5.0, 10.0


class Engine:
    """The containers of one machine. They are written down, and come back with the power if they
    are to.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._environment: dict[str, str] = {}
        self._lock = threading.RLock()
        self._closed = False
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._containers = {path.stem: _read(path) for path in directory.glob("*.json")}

    def boot(self, environment: dict[str, str]) -> None:
        """Those that are always to run begin."""
        self._environment = environment
        for container in list(self._containers.values()):
            wanted = container.restart == "always" or (
                container.restart == "unless-stopped" and not container.stopped
            )
            container.status = "exited"
            if wanted:
                self._begin(container)

    def pids(self) -> set[int]:
        """Of the containers' first processes: somebody waits for these."""
        with self._lock:
            return {each.pid for each in self._running.values()}

    def close(self) -> None:
        """Nothing begins any more."""
        with self._lock:
            self._closed = True

    def command(self, arguments: list[str]) -> dict[str, Any]:
        """{"code", "out", "err"} of a docker command."""
        given = list(arguments)
        while given and given[0] in ("-H", "--host", "--config", "-c", "--context"):
            del given[:2]
        verb, *rest = given or ["help"]
        verb = verb.removeprefix("--")
        if verb in ("container", "image") and rest:
            verb = rest.pop(0) if verb == "container" else f"image {rest.pop(0)}"
        try:
            does = getattr(self, f"_do_{verb.replace(' ', '_')}", None)
            if does is None:
                raise Refused(f"docker: '{verb}' is not a docker command.")
            return {"code": 0, "out": does(rest), "err": ""}
        except Refused as refused:
            return {"code": refused.code, "out": "", "err": f"{refused}\n"}

    # -- commands

    def _do_run(self, arguments: list[str]) -> str:
        container, beside, _ = parse_run(arguments)
        _check_image(container.image)
        with self._lock:
            if container.name in self._containers:
                words = f'Conflict. The container name "/{container.name}" is already in use'
                raise Refused(f"docker: Error response from daemon: {words}", 125)
            self._containers[container.name] = container
        for here, _ in container.mounts:
            if not Path(here).exists() and not here.startswith(("/dev", "/var/run", "/run")):
                Path(here).mkdir(parents=True)
        self._begin(container)
        if beside:
            return f"{_id(container)}\n"
        while container.status in ("created", "running"):
            time.sleep(0.02)
        text = self._log(container).read_text(errors="replace")
        self._remove(container)
        if container.exit_code:
            raise Refused(text, container.exit_code)
        return text

    def _do_pull(self, arguments: list[str]) -> str:
        image = next((each for each in reversed(arguments) if not each.startswith("-")), "")
        _check_image(image)
        return f"{image}\n"

    def _do_ps(self, arguments: list[str]) -> str:
        everything = any(each in ("-a", "--all", "-aq", "-qa") for each in arguments)
        wanted = [
            each.removeprefix("name=").strip("^$/")
            for each in arguments
            if each.startswith("name=")
        ]
        found = [
            each for each in self._containers.values() if everything or each.status == "running"
        ]
        found = [each for each in found if not wanted or any(name in each.name for name in wanted)]
        template = _value(arguments, "--format")
        if any(each in ("-q", "-aq", "-qa", "--quiet") for each in arguments):
            template = "{{.ID}}"
        return "".join(
            _filled(template or "{{.ID}}  {{.Image}}  {{.Status}}  {{.Names}}", _brief(each)) + "\n"
            for each in found
        )

    def _do_inspect(self, arguments: list[str]) -> str:
        template = _value(arguments, "-f", "--format")
        names = [
            each
            for each in arguments
            if not each.startswith("-") and each != template and each != "container"
        ]
        found = [self._named(each) for each in names]
        if template:
            return "".join(_filled(template, _long(each)) + "\n" for each in found)
        return json.dumps([_long(each) for each in found], indent=1) + "\n"

    def _do_image_inspect(self, arguments: list[str]) -> str:
        template = _value(arguments, "-f", "--format")
        images = [each for each in arguments if not each.startswith("-") and each != template]
        for image in images:
            _check_image(image)
        if template:
            return "".join(_filled(template, {"Id": f"sha256:{image}"}) + "\n" for image in images)
        return json.dumps([{"Id": f"sha256:{image}"} for image in images]) + "\n"

    def _do_rm(self, arguments: list[str]) -> str:
        forced = any(each in ("-f", "--force", "-fv") for each in arguments)
        out = ""
        for name in (each for each in arguments if not each.startswith("-")):
            if name not in self._containers and forced:
                continue
            container = self._named(name)
            if container.status == "running" and not forced:
                raise Refused(
                    f'Error response from daemon: cannot remove container "/{name}": container is'
                    " running"
                )
            self._end(container, signal.SIGKILL)
            self._remove(container)
            out += f"{name}\n"
        return out

    def _do_stop(self, arguments: list[str]) -> str:
        return self._each(arguments, lambda each: self._end(each, signal.SIGTERM))

    def _do_kill(self, arguments: list[str]) -> str:
        return self._each(arguments, lambda each: self._end(each, signal.SIGKILL))

    def _do_start(self, arguments: list[str]) -> str:
        return self._each(arguments, self._begin_once)

    def _begin_once(self, container: Container) -> None:
        if container.status != "running":
            self._begin(container)

    def _do_restart(self, arguments: list[str]) -> str:
        def again(container: Container) -> None:
            self._end(container, signal.SIGTERM)
            self._begin(container)

        return self._each(arguments, again)

    def _do_logs(self, arguments: list[str]) -> str:
        names = [each for each in arguments if each in self._containers]
        tail = _value(arguments, "--tail", "-n")
        lines = (
            self._log(self._named((names or arguments[-1:])[0]))
            .read_text(errors="replace")
            .splitlines(keepends=True)
        )
        return "".join(lines[-int(tail) :] if tail.isdecimal() else lines)

    def _do_info(self, arguments: list[str]) -> str:
        return (_value(arguments, "-f", "--format") and "29.0.0\n") or "Server Version: 29.0.0\n"

    def _do_version(self, arguments: list[str]) -> str:
        return "29.0.0\n"

    def _do_login(self, arguments: list[str]) -> str:
        return "Login Succeeded\n"

    def _do_system(self, arguments: list[str]) -> str:
        return ""

    # -- lives

    def _named(self, name: str) -> Container:
        if name not in self._containers:
            raise Refused(f"Error response from daemon: No such container: {name}")
        return self._containers[name]

    def _each(self, arguments: list[str], does: Callable[[Container], None]) -> str:
        rest = list(arguments)
        names = []
        while rest:
            each = rest.pop(0)
            if each in ("-t", "--time", "-s", "--signal", "--timeout"):
                rest.pop(0)
            elif not each.startswith("-"):
                names.append(each)
        for name in names:
            does(self._named(name))
        return "".join(f"{name}\n" for name in names)

    def _begin(self, container: Container) -> None:
        container.stopped, container.status = False, "running"
        self._keep(container)
        threading.Thread(target=self._live, args=(container,), daemon=True).start()

    def _live(self, container: Container) -> None:
        """Run it, and again, as it wants."""
        pause = RESTART_FIRST
        while True:
            began = time.monotonic()
            process = self._started(container)
            if process is None:
                return
            container.exit_code = process.wait()
            kill_marked(_id(container))  # a container ends with its first process
            with self._lock:
                self._running.pop(container.name, None)
                again = container.restart in ("always", "unless-stopped") or (
                    container.restart.startswith("on-failure") and container.exit_code != 0
                )
                if container.stopped or self._closed or not again:
                    container.status = "exited"
                    self._keep(container)
                    return
            pause = RESTART_FIRST if time.monotonic() - began > RAN_LONG else pause
            self._rest(container, pause)
            pause, container.restarts = min(2 * pause, RESTART_LAST), container.restarts + 1

    def _rest(self, container: Container, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until and not container.stopped:
            time.sleep(0.02)

    def _started(self, container: Container) -> subprocess.Popen[bytes] | None:
        with self._lock:
            if self._closed or container.stopped:
                container.status = "exited"
                return None
            command = [on_host(each, container.mounts) for each in container.command]
            if command[:1] == ["iris"]:
                command = [sys.executable, "-m", "iris.cli.main", *command[1:]]
            own = {
                name: on_host(value, container.mounts)
                for name, value in container.environment.items()
            }
            with self._log(container).open("ab") as log:
                try:
                    process = subprocess.Popen(
                        command,
                        cwd=self._directory,
                        env=self._environment | own | {MARK: _id(container)},
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        start_new_session=True,
                    )
                except OSError as error:
                    log.write(f"exec: {error}\n".encode())
                    container.status, container.exit_code = "exited", 127
                    return None
            self._running[container.name] = process
            return process

    def _end(self, container: Container, how: int) -> None:
        with self._lock:
            container.stopped = True
            process = self._running.get(container.name)
            self._keep(container)
        if process is not None:
            process.send_signal(how)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
        kill_marked(_id(container))
        while container.status == "running":
            time.sleep(0.01)

    def _remove(self, container: Container) -> None:
        self._containers.pop(container.name, None)
        (self._directory / f"{container.name}.json").unlink(missing_ok=True)

    def _keep(self, container: Container) -> None:
        if container.name in self._containers:
            path = self._directory / f"{container.name}.json"
            path.with_suffix(".new").write_text(json.dumps(asdict(container)))
            path.with_suffix(".new").replace(path)

    def _log(self, container: Container) -> Path:
        path = self._directory / f"{container.name}.log"
        path.touch()
        return path


def kill_marked(mark: str) -> None:
    """Everything in a container, whoever its parent is now."""
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if process.environ().get(MARK) == mark:
                process.kill()


def _check_image(image: str) -> None:
    if "missing" in image or not image:
        raise Refused(
            f"Error response from daemon: manifest for {image} not found: manifest unknown"
        )


def _id(container: Container) -> str:
    return re.sub("[^a-z0-9]", "", container.name.lower())[:12].ljust(12, "0")


def _brief(of: Container) -> dict[str, Any]:
    status = "Up 1 second" if of.status == "running" else f"Exited ({of.exit_code}) 1 second ago"
    return {
        "ID": _id(of),
        "Image": of.image,
        "Names": of.name,
        "Status": status,
        "State": of.status,
        "Command": of.command,
    }


def _long(of: Container) -> dict[str, Any]:
    state = {
        "Status": of.status,
        "Running": of.status == "running",
        "ExitCode": of.exit_code,
        "Restarting": False,
    }
    labels = dict(
        each.partition("=")[::2] for name in ("-l", "--label") for each in of.options.get(name, [])
    )
    config = {
        "Image": of.image,
        "Cmd": of.command,
        "Labels": labels,
        "Env": [f"{name}={value}" for name, value in of.environment.items()],
    }
    policy = {"RestartPolicy": {"Name": of.restart}}
    return {
        "Id": _id(of),
        "Name": f"/{of.name}",
        "State": state,
        "RestartCount": of.restarts,
        "Config": config,
        "HostConfig": policy,
    }


def _filled(template: str, values: dict[str, Any]) -> str:
    def found(match: re.Match[str]) -> str:
        value: Any = values
        for part in match[1].strip(".").split("."):
            value = value.get(part, "") if isinstance(value, dict) else ""
        if match.lastindex == 2 and isinstance(value, dict):
            value = value.get(match[2], "")
        return str(value).lower() if isinstance(value, bool) else str(value)

    template = re.sub(r'\{\{\s*index\s+(\.[\w.]+)\s+"([^"]+)"\s*\}\}', found, template)
    return re.sub(r"\{\{\s*(\.[\w.]+)\s*\}\}", found, template)


def _value(arguments: list[str], *names: str) -> str:
    for number, each in enumerate(arguments):
        name, given, value = each.partition("=")
        if name in names:
            return (
                value if given else (arguments[number + 1] if number + 1 < len(arguments) else "")
            )
    return ""


def _read(path: Path) -> Container:
    values = json.loads(path.read_text())
    values["mounts"] = [(here, inside) for here, inside in values["mounts"]]
    return Container(**values)
