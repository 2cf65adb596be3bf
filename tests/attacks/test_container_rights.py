"""What root in a container tries against its host: the network, devices, mounts, rights of other
users, many processes.
"""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from iris.activities.host.runtimes import process_limit
from iris.activities.host.runtimes.container.exec import ContainerCommand
from iris.messages.exec import ExecRequest, Frame
from tests import images
from tests.containers import Bench, containers, inspect, python
from tests.e2e.cluster import eventually

pytestmark = pytest.mark.docker

#: What root tries, by name; each prints `refused` if the system refuses it.
ATTEMPTS = {
    "raw socket": "socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)",
    "packets of the network": "socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0x0300)",
    "low port": "socket.socket().bind(('127.0.0.1', 997))",
    "disk of the host": "os.mknod('/tmp/disk', 0o600 | stat.S_IFBLK, os.makedev(8, 0))",
    "memory of the host": "os.mknod('/tmp/mem', 0o600 | stat.S_IFCHR, os.makedev(1, 1))",
    "chroot": "os.chroot('/tmp')",
    "mount": "libc.mount(b'none', b'/tmp', b'tmpfs', 0, None) == 0 or fail()",
    "mount of proc": "libc.mount(b'none', b'/tmp', b'proc', 0, None) == 0 or fail()",
    "clock": "time.clock_settime(time.CLOCK_REALTIME, time.time())",
    "name of the host": "socket.sethostname(socket.gethostname())",
    "priority": "os.setpriority(os.PRIO_PROCESS, 0, -10)",
    "another network": "libc.unshare(0x40000000) == 0 or fail()",
    "capability of a file": (
        "os.setxattr('/usr/bin/id', 'security.capability', b'\\1\\0\\0\\2\\0 \\0\\0' + bytes(12))"
    ),
}
RAW_SOCKET = ATTEMPTS["raw socket"]
TRY = """
import ctypes, os, socket, stat, time
libc = ctypes.CDLL(None, use_errno=True)
def fail(): raise PermissionError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
try:
    {attempt}
    print("permitted")
except PermissionError:
    print("refused")
"""
#: A copy of `id` with the setuid bit of root, started by another user.
BECOME_ROOT = """
import os, shutil
shutil.copy("/usr/bin/id", "/tmp/id")
os.chmod("/tmp/id", 0o4755)
os.setgid(4711); os.setuid(4711)
os.execv("/tmp/id", ["/tmp/id", "-u"])
"""
#: Tries to start 300 processes, prints how many started, and ends with them.
BOMB = """
import os, signal, time
started = 0
for _ in range(300):
    try:
        if os.fork() == 0:
            time.sleep(600)
            os._exit(0)
        started += 1
    except OSError as error:
        why = error.strerror
print(started, why if started < 300 else "no limit", flush=True)
signal.pause()
"""
LIMIT = 50


@pytest.fixture(scope="session")
def image() -> str:
    return images.docker_image()


@pytest.fixture
async def bench(tmp_path: Path, image: str) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path / "attempt", image)
    yield bench
    await bench.runtime.clear()
    assert containers(f"iris.key={bench.key}") == []


@pytest.mark.parametrize("attempt", ATTEMPTS.values(), ids=ATTEMPTS)
async def test_root_in_a_container_is_refused_what_concerns_the_host(
    bench: Bench, attempt: str
) -> None:
    """It is on the host's network and its kernel: packets of other users, the host's disks and its
    well-known ports are one call away.
    """
    await bench.run(*python(TRY.format(attempt=attempt)))

    assert (bench.out, bench.err) == ("refused\n", "")


async def test_a_setuid_program_gives_no_rights(bench: Bench) -> None:
    """An image brings its own setuid programs, and a fault in one would give a program that became
    another user root again.
    """
    ended = await bench.run(*python(BECOME_ROOT))

    assert (ended.status, bench.out) == (0, "4711\n"), bench.err


async def test_a_set_up_step_has_no_more_rights_than_the_program(bench: Bench) -> None:
    """Its command is the user's, too."""
    await bench.runtime.prepare()
    log = bench.directory / "build"
    await bench.runtime.step(python(TRY.format(attempt=RAW_SOCKET)), bench.env(), bench.work, log)

    assert log.read_text() == "refused\n"


async def test_a_command_beside_the_program_has_no_more_rights_than_the_program(
    bench: Bench,
) -> None:
    """`iris exec` enters the container through the engine, which could give it others."""
    await bench.start("sh", "-c", "echo up; sleep 1000")
    bench.says("up")
    output = bytearray()

    async def tell(frame: Frame) -> None:
        output.extend(frame.data)

    for script in (TRY.format(attempt=RAW_SOCKET), BECOME_ROOT):
        request = ExecRequest(session="s", job="ada/train", index=0, argv=tuple(python(script)))
        command = ContainerCommand(request, bench.program.launch)
        await command.start()
        await asyncio.wait_for(command.run(tell), 60)

    assert output.decode() == "refused\n4711\n"


async def test_package_managers_and_entry_points_of_images_work(bench: Bench) -> None:
    """They change owners, read files of other users, become another user, and signal its
    processes.
    """
    script = """
import os, shutil, signal, time
os.mkdir("/tmp/d", 0o700)
os.chown("/tmp/d", 4711, 4711)
open("/tmp/d/file", "w").write("kept")
os.chown("/tmp/d/file", 4711, 4711)
os.chmod("/tmp/d/file", 0o600)
print(open("/tmp/d/file").read())
child = os.fork()
if not child:
    os.setgroups([]); os.setgid(4711); os.setuid(4711)
    os.write(os.open("/tmp/d/file", os.O_WRONLY), b"mine")
    signal.pause()
while open("/tmp/d/file").read() != "mine":
    time.sleep(0.01)
os.kill(child, signal.SIGTERM)
print(os.waitpid(child, 0)[1])
shutil.rmtree("/tmp/d")
"""
    ended = await bench.run(*python(script))

    assert (ended.status, bench.out) == (0, "kept\n15\n"), bench.err


async def test_a_fork_bomb_stops_at_the_containers_limit(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the machine's limit, neither the agent nor the engine could start another process."""
    monkeypatch.setattr(process_limit, "MOST", LIMIT)
    program = await bench.start(*python(BOMB))
    eventually(
        lambda: (bench.directory / "stdout").exists() and bench.out.endswith("\n"), within=60
    )
    started, why = bench.out.split(maxsplit=1)
    program.stop(timedelta())
    ended = await asyncio.wait_for(program.wait(), 60)

    assert int(started) < LIMIT, why
    assert why == "Resource temporarily unavailable\n"
    assert ended.status == -9


async def test_every_container_has_a_limit_of_processes(bench: Bench) -> None:
    """The engine's default is none."""
    await bench.runtime.prepare()
    launch = await bench.runtime.launch(["true"], bench.env(), bench.work)

    assert 0 < inspect(launch.container)["HostConfig"]["PidsLimit"] <= process_limit.MOST
