"""`iris host ssh` and `iris ssh-config`: the system's ssh reaches real `sshd` processes as the
configuration says.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from iris.cli.main import run
from tests.sshd import Machine, machines, user

CONFIG = """name: lab
platform: {{manual: {{}}}}
controller: {{local: {{}}, bundle_prefix: "file:///nowhere"}}
defaults: {{ssh: {{user: {user}, key_file: "{key}", known_hosts: "{known}", jump_host: "{jump}"}}}}
scale_groups:
  g: {{type: manual_vm, hosts: [{address}], ssh_port: {port}}}
"""


@pytest.fixture
def lab(sshd: None, tmp_path: Path) -> Iterator[list[Machine]]:
    """A machine, and a gateway to it."""
    with machines(tmp_path / "lab", 2, first=121) as found:
        yield found


@pytest.fixture
def file(lab: list[Machine], tmp_path: Path) -> Path:
    """The configuration of a cluster with the machine, which is reached through the gateway. The
    cluster does not run.

    The directory of the keys has a name that ssh does not read as it is.
    """
    machine, gateway = lab
    keys = tmp_path / "50% of keys"
    keys.mkdir()
    for each in (machine.key, machine.key.parent / "known_hosts"):
        shutil.copy2(each, keys)
    there = {"user": user(), "key": keys / machine.key.name, "known": keys / "known_hosts"}
    there |= {
        "address": machine.address,
        "port": machine.port,
        "jump": f"{gateway.address}:{gateway.port}",
    }
    path = tmp_path / "lab.yaml"
    path.write_text(CONFIG.format(**there))
    return path


def iris(*arguments: object, home: Path) -> subprocess.CompletedProcess[str]:
    """Types a command. ssh takes the place of its process."""
    words = [sys.executable, "-m", "iris.cli.main", *map(str, arguments)]
    env = {**os.environ, "IRIS_STATE_DIR": str(home / "state")}
    return subprocess.run(
        words, env=env, capture_output=True, text=True, input="typed\n", timeout=120
    )


def test_a_command_runs_on_the_machine_and_its_exit_code_is_passed_on(
    lab: list[Machine], file: Path, tmp_path: Path
) -> None:
    """Through the gateway, with the words as they were typed, and without a cluster that runs."""
    program = ("sh", "-c", 'cat; echo "$HOME" "$1"; echo no >&2; exit 7', "-", "a  b")

    ran = iris("host", "ssh", "--config", file, lab[0].address, "--", *program, home=tmp_path)

    assert (ran.returncode, ran.stdout) == (7, f"typed\n{lab[0].home} a  b\n")
    assert "no\n" in ran.stderr


def test_one_word_is_a_line_for_the_shell(lab: list[Machine], file: Path, tmp_path: Path) -> None:
    """As ssh's users know it."""
    ran = iris(
        "host", "ssh", lab[0].address, "--config", file, "--", "cat | tr a-z A-Z", home=tmp_path
    )
    assert (ran.returncode, ran.stdout) == (0, "TYPED\n")


def test_the_printed_configuration_is_one_that_ssh_can_use(
    lab: list[Machine], file: Path, tmp_path: Path
) -> None:
    """For rsync and editors, which call ssh themselves."""
    printed = iris("ssh-config", "--config", file, home=tmp_path)
    assert printed.returncode == 0
    written = tmp_path / "ssh_config"
    written.write_text(printed.stdout)
    ssh = shutil.which("ssh")
    assert ssh is not None

    ran = subprocess.run(
        [ssh, "-F", written, lab[0].address, "echo $HOME"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert (ran.returncode, ran.stdout) == (0, f"{lab[0].home}\n"), ran.stderr


def test_a_cluster_without_machines_over_ssh_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its machines are reached otherwise."""
    example = Path(__file__).parents[3] / "examples" / "eu-west4.yaml"
    assert run(["ssh-config", "--config", str(example)]) == 5
    assert "no SSH machines of cluster eu-west4 are known here" in capsys.readouterr().err


def test_an_unknown_machine_is_answered_with_the_known_ones(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also while the cluster does not run, whose hosts then have no ids."""
    monkeypatch.setenv("IRIS_STATE_DIR", str(tmp_path / "state"))
    assert run(["host", "ssh", "gpu7", "--config", str(file)]) == 3
    assert (
        "no machine in the configuration has the address gpu7: they are 127.0.0.121"
        in capsys.readouterr().err
    )
