"""`iris cluster init`, against real `sshd` processes: what the machines have becomes a
configuration.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from iris.cli.main import run
from iris.config import load_config
from tests.sshd import Machine, machines

#: Stands for NVIDIA's program: two GPUs, as the driver prints them.
NVIDIA_SMI = """#!/bin/sh
case $1 in
-L) echo 'GPU 0: NVIDIA L4 (UUID: GPU-1)'; echo 'GPU 1: NVIDIA L4 (UUID: GPU-2)' ;;
*)
    echo '0, GPU-1, NVIDIA L4, 23034, 00000000:00:04.0, [N/A]'
    echo '1, GPU-2, NVIDIA L4, 23034, 00000000:00:05.0, [N/A]' ;;
esac
"""


@pytest.fixture
def lab(sshd: None, tmp_path: Path) -> Iterator[list[Machine]]:
    """Three machines at one port."""
    with machines(tmp_path, 3, first=111, same_port=True) as found:
        yield found


def init(lab: list[Machine], *options: str) -> int:
    """Types the command with the addresses of the machines as one range."""
    known = lab[0].key.parent / "known_hosts"
    return run(
        [
            "cluster",
            "init",
            f"127.0.0.[111-113]:{lab[0].port}",
            "--key",
            str(lab[0].key),
            "--known-hosts",
            str(known),
            *options,
        ]
    )


def give_gpus(machine: Machine) -> None:
    """Puts a stand-in for nvidia-smi first on the machine's path."""
    program = machine.home / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text(NVIDIA_SMI)
    program.chmod(0o755)
    (machine.home / ".bashrc").write_text(
        "echo welcome to this machine\nexport PATH=$HOME/bin:$PATH\n"
    )


def test_usable_machines_become_groups_and_the_others_are_named(
    lab: list[Machine], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file can be used as it is, and nothing is left on the machines or in the store."""
    give_gpus(lab[1])
    lab[2].stop()
    store, file = tmp_path / "store", tmp_path / "lab.yaml"
    store.mkdir()
    before = [each.left() for each in lab]

    assert init(lab, "--store", str(store), "-o", str(file)) == 0

    printed = capsys.readouterr()
    assert f"next: iris cluster start --config {file}" in printed.out
    assert f"127.0.0.113 cannot be used: port {lab[0].port} " in printed.err
    config = load_config(file)
    assert {name: group.hosts for name, group in config.scale_groups.items()} == {
        "cpu": ("127.0.0.111",),
        "l4x2": ("127.0.0.112",),
    }
    assert config.controller.bundle_prefix == store.as_uri()
    assert "127.0.0.113: port" in file.read_text()
    assert [each.left() for each in lab] == before
    assert list(store.iterdir()) == []


def test_a_file_stays_unless_it_is_to_be_overwritten(
    lab: list[Machine], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It may have an afternoon's comments in it. Without a store, the next step is to name one."""
    file = tmp_path / "lab.yaml"
    file.write_text("mine\n")

    assert init(lab, "-o", str(file)) == 2
    assert file.read_text() == "mine\n"
    assert "exists; choose another file, or add --force" in capsys.readouterr().err

    assert init(lab, "-o", str(file), "--force") == 0
    assert (
        "next: write the place of the store to controller.bundle_prefix" in capsys.readouterr().out
    )
    assert "127.0.0.113" in file.read_text()


def test_machines_without_a_tunnel_or_with_another_store_are_left_out(
    lab: list[Machine], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else the start would fail with it, minutes later. Nothing is written if no machine
    remains.
    """
    for each in lab[:2]:
        each.stop()
    lab[0].settings = "AllowTcpForwarding no"
    elsewhere = "sed 's/\\/store/\\/elsewhere/'"  # stands for a machine that has not mounted it
    lab[1].settings = f'ForceCommand {elsewhere} | sh -c "$SSH_ORIGINAL_COMMAND"'
    for each in lab[:2]:
        each.start()
    lab[2].stop()
    store, file = tmp_path / "store", tmp_path / "lab.yaml"
    store.mkdir()

    assert init(lab, "--store", str(store), "-o", str(file)) == 1

    printed = capsys.readouterr().err
    assert "no machine can be used, so no file is written" in printed
    assert (
        "127.0.0.111 cannot be used: its sshd allows no tunnels; set AllowTcpForwarding yes in"
        " sshd_config there" in printed
    )
    assert (
        f"127.0.0.112 cannot be used: its {store} does not exist; mount the shared directory"
        in printed
    )
    assert not file.exists()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--name", "my lab"], "name: 'my lab' is not a valid name"),
        (
            ["--store", "bucket:iris"],
            "is no directory of this machine; create or mount the shared directory first",
        ),
        (["--store", "nfs:"], "is no directory of this machine"),
        (["--jump-host", "a b"], "jump_host: 'a b' is not a machine; write [USER@]HOST[:PORT]"),
    ],
)
def test_a_wrong_option_is_named_before_any_machine_is_visited(
    options: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The address would not answer."""
    assert run(["cluster", "init", "192.0.2.1", *options, "-o", "-"]) in (2, 5)
    assert problem in capsys.readouterr().err
