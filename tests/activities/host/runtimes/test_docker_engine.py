"""Images that have to be fetched, and an engine that goes away or hangs: whose fault that is, and
what becomes of the program.
"""

import asyncio
import contextlib
import gzip
import hashlib
import io
import json
import signal
import subprocess
import tarfile
import tempfile
import threading
from collections.abc import Iterator
from datetime import timedelta
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from uuid import uuid4

import pytest

from iris.activities.host.runtimes.base import HostFault, JobFault
from tests import images
from tests.containers import Bench, containers
from tests.e2e.cluster import eventually

pytestmark = pytest.mark.docker


# -- a registry
# --------------------------------------------------------------------------------------------------


class Registry(ThreadingHTTPServer):
    """One that has a single image, `there`, of a single file; and trouble with others, under names
    that say which.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        layer = io.BytesIO()
        with tarfile.open(fileobj=layer, mode="w") as files:
            content = uuid4().hex.encode()  # so that no engine has it already
            entry = tarfile.TarInfo("word")
            entry.size = len(content)
            files.addfile(entry, io.BytesIO(content))
        config = {
            "architecture": "amd64",
            "os": "linux",
            "config": {},
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer.getvalue())]},
        }
        blobs = [json.dumps(config).encode(), gzip.compress(layer.getvalue())]
        kinds = [
            "application/vnd.docker.container.image.v1+json",
            "application/vnd.docker.image.rootfs.diff.tar.gzip",
        ]
        told = [
            {"mediaType": kind, "size": len(blob), "digest": _digest(blob)}
            for kind, blob in zip(kinds, blobs, strict=True)
        ]
        self.blobs = {_digest(blob): blob for blob in blobs}
        self.manifest = json.dumps(
            {"schemaVersion": 2, "mediaType": MANIFEST, "config": told[0], "layers": told[1:]}
        ).encode()

    def name(self, image: str) -> str:
        return f"127.0.0.1:{self.server_port}/{image}"


MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
TROUBLE = {
    "nobodys": (
        HTTPStatus.FORBIDDEN,
        "DENIED",
        "requested access to the resource is denied to strangers",
    ),
    "absent": (HTTPStatus.NOT_FOUND, "MANIFEST_UNKNOWN", "manifest unknown"),
    "crowded": (
        HTTPStatus.TOO_MANY_REQUESTS,
        "TOOMANYREQUESTS",
        "You have reached your pull rate limit.",
    ),
    "private": (
        HTTPStatus.FORBIDDEN,
        "DENIED",
        "Permission artifactregistry.repositories.downloadArtifacts denied",
    ),
    "broken": (HTTPStatus.INTERNAL_SERVER_ERROR, "UNKNOWN", "internal error"),
}


def _digest(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


class _Answers(BaseHTTPRequestHandler):
    server: Registry

    def do_GET(self) -> None:
        _, _, image, *rest = self.path.split("/")
        if image == "":
            self._say(HTTPStatus.OK, b"{}", "application/json")
        elif image in TROUBLE:
            status, code, message = TROUBLE[image]
            said = json.dumps({"errors": [{"code": code, "message": message}]}).encode()
            self._say(status, said, "application/json")
        elif rest[0] == "manifests":
            self._say(HTTPStatus.OK, self.server.manifest, MANIFEST)
        else:
            self._say(HTTPStatus.OK, self.server.blobs[rest[1]], "application/octet-stream")

    do_HEAD = do_GET  # noqa: N815

    def _say(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Docker-Content-Digest", _digest(body))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nobody wants to know."""


@pytest.fixture
def registry() -> Iterator[Registry]:
    with Registry() as registry:
        threading.Thread(target=registry.serve_forever, daemon=True).start()
        yield registry
        registry.shutdown()
        subprocess.run(["docker", "rmi", registry.name("there")], capture_output=True)


async def test_an_image_that_is_not_here_is_fetched_and_said_to_be(
    tmp_path: Path, registry: Registry
) -> None:
    """Whoever waits for a large one wants to see that something happens; and where it came from
    when it is the wrong one.
    """
    bench = Bench(tmp_path / "attempt", registry.name("there"))
    await bench.runtime.prepare()
    said = (bench.directory / "build").read_text()

    assert bench.runtime.identity.startswith(f"{_digest(next(iter(registry.blobs.values())))} for ")
    assert said.startswith(f"fetching the image {registry.name('there')}\n")
    assert "Pull complete" in said
    with pytest.raises(JobFault, match="has no /bin/sh") as refused:
        await bench.runtime.launch(["/word"], bench.env(), bench.work)
    assert refused.value.exit_code == 126
    assert containers(f"iris.key={bench.key}") == []


@pytest.mark.parametrize("name", ["absent", "absent:v2", "nobodys", "Not An Image!"])
async def test_an_image_that_is_nowhere_is_the_users_fault(
    tmp_path: Path, registry: Registry, name: str
) -> None:
    """A hundred tries on a hundred hosts would not find it."""
    image = registry.name(name)
    bench = Bench(tmp_path / "attempt", image)

    with pytest.raises(JobFault, match=f"the image '{image}' does not exist") as refused:
        await bench.runtime.prepare()
    assert refused.value.exit_code == 125


@pytest.mark.parametrize("name", ["crowded", "private", "broken"])
async def test_an_image_that_cannot_be_fetched_is_no_fault_of_the_users(
    tmp_path: Path, registry: Registry, name: str
) -> None:
    """Another host, or a later hour, may have more luck."""
    bench = Bench(tmp_path / "attempt", registry.name(name))

    with pytest.raises(
        HostFault, match=f"the image '{registry.name(name)}' could not be fetched: "
    ) as unable:
        await bench.runtime.prepare()
    assert unable.value.fault == "image-pull"


async def test_a_registry_that_is_away_is_no_fault_of_the_users(
    tmp_path: Path, registry: Registry
) -> None:
    """Nor is a network that is down."""
    bench = Bench(tmp_path / "attempt", registry.name("there"))
    registry.shutdown()
    registry.server_close()

    with pytest.raises(HostFault, match="could not be fetched") as unable:
        await bench.runtime.prepare()
    assert unable.value.fault == "image-pull"


# -- an engine that goes away
# --------------------------------------------------------------------------------------------------


class Engine:
    """An engine of the test's own, which may be mistreated."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.address = f"unix://{home}/docker.sock"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> None:
        """Start it, also after it was stopped, and wait until it answers."""
        # Of one that was killed, and not yet seen to by init.
        for stale in (
            "docker.pid",
            "run/containerd/containerd.pid",
        ):
            (self._home / stale).unlink(missing_ok=True)
        with (self._home / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    "dockerd",
                    f"--host={self.address}",
                    f"--data-root={self._home}/data",
                    f"--exec-root={self._home}/run",
                    f"--pidfile={self._home}/docker.pid",
                    "--containerd-namespace=iris-test",
                    "--containerd-plugins-namespace=iris-test-plugins",
                    "--bridge=none",
                    "--iptables=false",
                    *options,
                ],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        eventually(self._answers, within=60)

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self._home / "log").read_text()[-2000:]
        return (
            subprocess.run(["docker", "version"], capture_output=True, timeout=60).returncode == 0
        )

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        assert self.process is not None
        self.send(number)
        self.process.wait(60)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    with tempfile.TemporaryDirectory(prefix="iris-", ignore_cleanup_errors=True) as home:
        engine = Engine(Path(home))
        monkeypatch.setenv("DOCKER_HOST", engine.address)
        try:
            yield engine
        finally:
            if engine.process is not None and engine.process.poll() is None:
                engine.send(signal.SIGCONT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    engine.stop()
            mounted = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
            for left in sorted(
                (each for each in mounted if each.startswith(f"{home}/")), reverse=True
            ):
                subprocess.run(["umount", "--lazy", left])


async def until(*words: str, bench: Bench) -> None:
    for word in words:
        await asyncio.to_thread(bench.says, word)


WAITS = ("sh", "-c", "echo up; until [ -e go ]; do sleep 0.1; done; echo done; exit 5")


async def test_a_program_goes_on_while_an_engine_with_live_restore_is_started_anew(
    tmp_path: Path, engine: Engine
) -> None:
    """An upgrade of Docker must not cost anybody a week of training, nor the exit code, nor a word
    of its output.
    """
    engine.start("--live-restore")
    bench = Bench(tmp_path / "attempt", images.make(small=True))
    program = await bench.start(*WAITS)
    await until("up", bench=bench)
    engine.stop()
    (bench.work / "go").touch()
    await until("done", bench=bench)
    assert program.exit is None
    engine.start("--live-restore")
    ended = await asyncio.wait_for(program.wait(), 60)
    await bench.runtime.clear()

    assert (ended.status, ended.error, bench.out) == (5, "", "up\ndone\n")
    assert containers(f"iris.key={bench.key}") == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a_program_that_its_engine_has_ended_is_not_blamed(
    tmp_path: Path, engine: Engine, number: signal.Signals
) -> None:
    """Without live restore it ends what it runs. Even a program that then ends well has not done
    its work.
    """
    engine.start()
    bench = Bench(tmp_path / "attempt", images.make(small=True))
    program = await bench.start(
        "sh", "-c", 'trap "exit 0" TERM; echo up; while true; do sleep 0.1; done'
    )
    await until("up", bench=bench)
    engine.stop(number)
    engine.start()
    ended = await asyncio.wait_for(program.wait(), 60)
    await bench.runtime.clear()

    assert (ended.status, ended.error) == (
        None,
        "the container engine was stopped and ended the program",
    )
    assert containers(f"iris.key={bench.key}") == []


async def test_a_program_is_ended_in_time_though_its_engine_hangs(
    tmp_path: Path, engine: Engine
) -> None:
    """The cluster counts on it: the task may be started elsewhere."""
    engine.start()
    bench = Bench(tmp_path / "attempt", images.make(small=True))
    program = await bench.start("sleep", "1000")
    started = await asyncio.to_thread(eventually, lambda: program.started)
    engine.send(signal.SIGSTOP)
    program.stop(timedelta())
    ended = await asyncio.wait_for(program.wait(), 60)
    assert not Path(f"/proc/{started.pid}").exists()
    engine.send(signal.SIGCONT)
    await bench.runtime.clear()

    assert ended.status == -signal.SIGKILL
    assert containers(f"iris.key={bench.key}") == []
