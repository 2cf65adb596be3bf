"""What the machine of a control plane over SSH says when it cannot have one, against a real `sshd`
process.
"""

import asyncio
import hashlib
import io
import os
import shutil
import socket
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from iris.platforms.manual import controller_ops, leases
from iris.platforms.manual.connections import MachineFault, UnusableMachine
from iris.platforms.manual.controller_ops import ControllerHost, SeenController
from iris.platforms.manual.runtime import PYTHON, Runtime
from iris.platforms.manual.settings import HostAccess, ManualSettings
from tests.fakes.systemctl import SYSTEMCTL
from tests.platforms.worlds import no_packages
from tests.sshd import Machine, machines


@pytest.fixture
def machine(sshd: None, tmp_path: Path) -> Iterator[Machine]:
    with machines(tmp_path / "lab", 1, first=31) as found:
        yield found[0]


@pytest.fixture
def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def controller(machine: Machine, uid: str = "one", key: Path | None = None) -> ControllerHost:
    host = HostAccess(address="10.9.9.9", user="iris", key_file=key or machine.key)
    known = machine.key.parent / "known_hosts"
    settings = ManualSettings(
        cluster="lab", uid=uid, hosts={"g": (host,)}, zones={"g": ("a",)}, known_hosts=known
    )
    return ControllerHost(settings, machine.access)


async def test_a_machine_without_a_control_plane_says_so(machine: Machine) -> None:
    """A look changes nothing there."""
    assert await controller(machine).look() == SeenController()
    assert machine.left() == []


async def test_a_port_that_another_program_has_is_named_with_its_setting(machine: Machine) -> None:
    """The Temporal service would fail later, with a text of its own."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(
            UnusableMachine, match=f"port {port} is in use there; set controller.manual.port"
        ):
            await controller(machine).claim(port)


@pytest.mark.parametrize(
    ("needed", "value", "reason"),
    [
        (
            "PYTHON",
            "3.99",
            (
                "the machine has no Python 3.99, which the control plane's packages need; install"
                " python3.99 there"
            ),
        ),
        (
            "MACHINE",
            "vax",
            "the machine is Linux .*, and the control plane's packages are for Linux vax",
        ),
        (
            "SPACE",
            2**40,
            r"the disk of .*/.iris-controller/lab has \d+ MiB free, and 1073741824 MiB are needed",
        ),
    ],
    ids=["python", "architecture", "disk"],
)
async def test_a_machine_that_cannot_run_a_control_plane_is_refused_before_anything_is_sent(
    machine: Machine,
    free_port: int,
    monkeypatch: pytest.MonkeyPatch,
    needed: str,
    value: object,
    reason: str,
) -> None:
    """The reason is the real one: without a Python that fits, no port can be tried, and every one
    would seem to be in use.
    """
    monkeypatch.setattr(controller_ops, needed, value)

    with pytest.raises(UnusableMachine, match=reason):
        await controller(machine).claim(free_port)


async def test_a_key_of_the_hosts_that_is_not_on_the_machine_is_refused_and_never_copied(
    machine: Machine, free_port: int
) -> None:
    """A private key goes to another machine only by its owner's hand."""
    with pytest.raises(
        UnusableMachine, match=r"the key .*/.ssh/lab is not there.*Iris copies no private key"
    ):
        await controller(machine, key=Path("~/.ssh/lab")).claim(free_port)


async def test_another_cluster_with_the_name_keeps_its_control_plane(
    machine: Machine, free_port: int
) -> None:
    """Two labs that call their clusters the same must not end each other's."""
    await controller(machine, "one").claim(free_port)

    with pytest.raises(
        UnusableMachine,
        match="another cluster lab has its control plane there; give this one another name",
    ):
        await controller(machine, "two").look()
    assert (await controller(machine, "one").look()).uid == "one"


async def test_half_an_installation_is_removed_without_a_trace(
    machine: Machine, free_port: int
) -> None:
    """An interrupted start has leased no host, so its stop needs no packages."""
    before = machine.left()
    await controller(machine).claim(free_port)
    await controller(machine).remove()

    assert machine.left() == before


async def test_packages_of_an_interrupted_restart_are_reported_because_the_next_start_uses_them(
    machine: Machine, free_port: int, tmp_path: Path
) -> None:
    """Otherwise, a restart with the older packages would find them installed, and start the newer
    ones.
    """
    await controller(machine).claim(free_port)
    file = tmp_path / "packages.tgz"
    with tarfile.open(file, "w:gz"):
        pass  # no package is needed to unpack them
    runtime = Runtime(file, hashlib.sha256(file.read_bytes()).hexdigest())
    await controller(machine).install(runtime)

    assert (await controller(machine).look()).runtime == runtime.digest


#: In the place of Iris: it checks and stops nothing, and serves until it is ended.
PROGRAM = b"""
import signal, sys
if "serve" in sys.argv:
    print("serving", flush=True)
    signal.pause()
"""


@pytest.mark.long
async def test_systemd_keeps_a_control_plane_through_a_reboot_and_forgets_it_at_the_stop(
    machine: Machine, free_port: int, tmp_path: Path
) -> None:
    """Its unit is enabled, so the machine starts it. A halt leaves it enabled, and the removal
    leaves no unit.
    """
    systemctl = machine.home / "bin" / "systemctl"
    systemctl.parent.mkdir()
    systemctl.write_text(SYSTEMCTL)
    systemctl.chmod(0o755)
    (machine.home / ".bashrc").write_text("export PATH=$HOME/bin:$PATH\n")
    ours, packages = controller(machine), tmp_path / "packages.tgz"
    with tarfile.open(packages, "w:gz") as archive:
        for name, content in {
            "iris/__init__.py": b"",
            "iris/cli/__init__.py": b"",
            "iris/cli/main.py": PROGRAM,
        }.items():
            entry = tarfile.TarInfo(f"lib/python{PYTHON}/site-packages/{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    await ours.claim(free_port)
    await ours.install(Runtime(packages, hashlib.sha256(packages.read_bytes()).hexdigest()))
    # This machine has no systemd that could be found.
    (machine.home / ".iris-controller" / "lab" / "manager").write_text("user\n")

    launched = await ours.launch("name: lab\n")
    assert (launched.manager, launched.config) == ("user", "name: lab\n")
    (serving,) = (each for each in machine.processes() if "serve" in each.cmdline())
    assert launched.pid == serving.pid

    machine.power_off()
    machine.start()
    assert (await ours.look()).pid == 0
    home = {**os.environ, "HOME": str(machine.home)}
    await asyncio.to_thread(
        subprocess.run, [systemctl, "--user", "boot"], env=home, check=True, timeout=60
    )
    again = await ours.look()
    assert again.pid not in (0, launched.pid)
    assert (await ours.launch("name: lab\n")).pid == again.pid
    assert "serving" in await ours.output(10)

    await ours.halt()
    assert (await ours.look()).pid == 0
    enabled = machine.home / ".systemd" / "iris-lab.service.enabled"
    assert enabled.exists()
    assert (await ours.launch("name: lab\n")).pid

    await ours.remove()
    assert (await ours.look()) == SeenController()
    assert not enabled.exists()
    assert [
        each for each in machine.left() if "iris" in each and not each.startswith(".systemd")
    ] == []
    assert machine.processes() == []


async def test_a_control_plane_whose_python_is_gone_is_not_removed_before_it_gave_back_its_hosts(
    machine: Machine, free_port: int, tmp_path: Path
) -> None:
    """An upgrade of the system replaces it. The leases would be forgotten; the reason names the way
    out, which installs anew.
    """
    ours = controller(machine)
    await ours.claim(free_port)
    await ours.install(no_packages(tmp_path))
    home = machine.home / controller_ops.DIRECTORY / "lab"
    (home / "runtime.new").rename(home / "runtime")
    (home / "state/clusters/lab").mkdir(parents=True)
    (home / "state/clusters/lab/cluster.json").write_text("{}")
    (home / "runtime/bin/python").unlink()

    assert (await ours.look()).runtime == ""
    with pytest.raises(
        UnusableMachine,
        match=r"was removed or replaced there.*with: iris cluster restart lab, and stop it then",
    ):
        await ours.remove()
    assert home.exists()


async def test_a_machine_that_is_down_is_named(machine: Machine) -> None:
    """Nothing hangs, and the reader learns which machine it is."""
    machine.stop()
    with pytest.raises(MachineFault, match=rf"{machine.address}: port {machine.port} "):
        await controller(machine).look()


@pytest.mark.parametrize("home", ["/home/iris", "/srv/50% of it"])
def test_the_unit_is_one_that_systemd_accepts(home: str, tmp_path: Path) -> None:
    """A fault in it would show only after a reboot."""
    settings = ManualSettings(
        cluster="lab", uid="one", hosts={}, zones={}, directory=controller_ops.DIRECTORY
    )
    call = f"{controller_ops.SCRIPT}\ntarget=multi-user.target\nwrite_unit"
    asked = leases.script(settings, call, CLUSTER="lab", HOME=home)
    text = subprocess.run(
        ["sh", "-s"], input=asked, capture_output=True, check=True, text=True
    ).stdout
    unit = tmp_path / "iris-lab.service"
    place = f"{home.replace('%', '%%')}/.iris-controller/lab"
    assert (
        f'ExecStart="{place}/runtime/bin/python" -m iris.cli.main controller manual serve --config'
        f' "{place}/config.yaml"' in text
    )

    # The program is not on this machine.
    unit.write_text(text.replace(f'"{place}/runtime/bin/python"', "/bin/true"))
    if shutil.which("systemd-analyze") is not None:
        said = subprocess.run(
            ["systemd-analyze", "verify", unit], capture_output=True, check=False, text=True
        )
        assert [line for line in said.stderr.splitlines() if unit.name in line] == []
