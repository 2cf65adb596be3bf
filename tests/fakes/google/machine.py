"""A host that has booted, as a process: its metadata server, its startup script, its containers; it
ends with its owner.

    python -m tests.fakes.google.machine DIR

DIR/machine.json describes it. On SIGTERM all processes started here are killed; the files in DIR
stay, as on a disk.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil

from iris.model.host.accelerators import tpu
from tests.fakes.google.docker import Engine
from tests.fakes.metadata import FakeMetadata

#: What scripts find before anything else.
SHIMS = Path(__file__).parent / "shims"
ROOT = Path(__file__).parents[3]
_PR_SET_CHILD_SUBREAPER = 36
#: Between two looks, in seconds. There are many hosts, and a look costs.
TICK = 0.25
#: Processes that somebody waits for, beside those of containers.
SCRIPTS: set[int] = set()


class MachineServer(FakeMetadata):
    """The metadata server; the docker command and the cloud speak to the machine through it,
    too.
    """

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self._engine = engine

    def told(self, path: str, body: bytes) -> bytes | None:
        """See `FakeMetadata`."""
        asked: dict[str, Any] = json.loads(body)
        if path == "/machine/set":
            self.put(asked["path"], asked["value"])
            return b""
        if path == "/machine/docker":
            return json.dumps(self._engine.command(asked["arguments"])).encode()
        return None


def serve(home: Path) -> None:
    """Boot, and go on until the power is cut."""
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the one before may still be going down
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        cut = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: cut.set())
        told = json.loads((home / "machine.json").read_text())
        root = home / "root"
        root.mkdir(exist_ok=True)
        have_chips(root, told["metadata"].get("instance/attributes/accelerator-type", ""))
        engine = Engine(home / "docker")
        server = MachineServer(engine)
        for path, value in told["metadata"].items():
            server.put(path, value)
        port = home / "port"
        with server.started(int(port.read_text()) if port.exists() else 0):
            port.write_text(server.url.rpartition(":")[2])
            environment = os.environ | {"GCE_METADATA_HOST": server.url.removeprefix("http://")}
            engine.boot(environment | {"PYTHONPATH": str(ROOT)})
            environment |= {
                "IRIS_ROOT": str(root),
                "PATH": f"{SHIMS}:{os.environ['PATH']}",
                "IRIS_FAKE_PYTHON": sys.executable,
            }
            script = told["metadata"].get("instance/attributes/startup-script", "")
            threading.Thread(
                target=run_script, args=(home, script, environment), daemon=True
            ).start()
            is_owned = owner_check(told["owner"])
            while not cut.wait(TICK) and is_owned():
                reap(engine)
            cut_power(engine)
            os._exit(0)  # there is nothing left to say, and threads hold questions for a minute


def have_chips(root: Path, variant: str) -> None:
    """The device files of a TPU VM, which its driver makes."""
    files = [*map(str, range(tpu(variant).chips_per_host)), "vfio"] if variant else []
    for file in files:
        (root / "dev/vfio").mkdir(parents=True, exist_ok=True)
        (root / "dev/vfio" / file).touch()


def run_script(home: Path, script: str, environment: dict[str, str]) -> None:
    """What Google's guest agent does at each boot: its words go to the serial console."""
    if not script:
        return
    path = home / "startup-script"
    path.write_text(script)
    with (home / "console.log").open("a", buffering=1) as console:
        run = subprocess.Popen(
            ["bash", str(path)],
            cwd=home,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        SCRIPTS.add(run.pid)
        assert run.stdout is not None
        for line in run.stdout:
            console.write(f"startup-script: {line}")
        console.write(f"startup-script exit status {run.wait()}\n")


def owner_check(pid: int) -> Any:
    """A function that says whether the owner goes on."""
    if not pid:
        return lambda: True
    try:
        owner = psutil.Process(pid)
    except psutil.NoSuchProcess:
        return lambda: False
    return lambda: owner.is_running() and owner.status() != psutil.STATUS_ZOMBIE


def reap(engine: Engine) -> None:
    """Orphans that have ended: whatever has lost its parent here becomes a child of the machine."""
    with contextlib.suppress(ChildProcessError):  # there is no child
        # The next one that has ended, which stays there. A list of all children would cost a look
        # at each process of this machine.
        look = os.WEXITED | os.WNOHANG | os.WNOWAIT
        while ended := os.waitid(os.P_ALL, 0, look):
            # In this order: whoever is not in these now was none of them when it ended.
            if ended.si_pid in engine.pids() | SCRIPTS:
                return  # who waits for it is about to see its end
            os.waitpid(ended.si_pid, os.WNOHANG)


def cut_power(engine: Engine) -> None:
    """Everything ends, with no time for last words."""
    engine.close()
    while children := psutil.Process().children(recursive=True):
        living = []
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                if child.status() != psutil.STATUS_ZOMBIE:
                    child.kill()
                    living.append(child)
        if not living:
            return
        time.sleep(0.01)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
