"""What `python` and `iris` are in a program."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from iris.activities.host.environment.commands import with_commands, without_environment
from tests.pythons import VERSION


def test_programs_do_not_get_the_environment_of_their_agent(tmp_path: Path) -> None:
    """Its packages are not theirs: a program that uses one fails on the next host. Links to it are
    no way around.
    """
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    (tmp_path / "link").symlink_to("venv")
    path = f"{tmp_path}/venv/bin:/usr/bin:{tmp_path}/link/bin:{tmp_path}/other/bin"

    assert without_environment(path, f"{tmp_path}/venv", "/usr") == f"/usr/bin:{tmp_path}/other/bin"
    assert without_environment(path, "/usr", "/usr") == path


def machine(directory: Path, *commands: str) -> dict[str, str]:
    """The variables of a host that has these commands and no others."""
    directory.mkdir()
    for command in commands:
        (directory / command).write_text(f"#!/bin/sh\necho {command} of the machine\n")
        (directory / command).chmod(0o755)
    return {"PATH": str(directory), "HOME": "/home/ada"}


def ran(env: dict[str, str], *command: str) -> str:
    where = shutil.which(command[0], path=env["PATH"])
    assert where is not None
    return subprocess.run(
        [where, *command[1:]], env=env, capture_output=True, text=True, check=True, timeout=120
    ).stdout.strip()


@pytest.mark.parametrize(
    ("there", "python", "python3"),
    [
        (("python", "python3"), "python of the machine", "python3 of the machine"),
        (("python3",), "python3 of the machine", "python3 of the machine"),
        (("python",), "python of the machine", "3"),
        ((), "3", "3"),
    ],
)
def test_python_is_the_machines_or_else_a_standard_one(
    tmp_path: Path, there: tuple[str, ...], python: str, python3: str
) -> None:
    """`python train.py` runs on every host, also where only `python3` is installed, or none."""
    env = with_commands(machine(tmp_path / "bin", *there), tmp_path / "commands")
    version = ("-c", "import sys; print(sys.version_info[0])")

    assert (ran(env, "python", *version), ran(env, "python3", *version)) == (python, python3)
    assert env["HOME"] == "/home/ada"


def test_the_python_of_the_agent_is_there_by_its_version(tmp_path: Path) -> None:
    """A function needs the version that has pickled it, and the machine's `python` often is another
    one.
    """
    env = with_commands(machine(tmp_path / "bin", "python", "python3"), tmp_path / "commands")

    assert (
        ran(env, f"python{VERSION}", "-c", "import sys; print('%d.%d' % sys.version_info[:2])")
        == VERSION
    )


def test_the_standard_python_has_none_of_the_agents_packages(tmp_path: Path) -> None:
    """A program must not find out by chance that its host runs Iris."""
    env = with_commands(machine(tmp_path / "bin"), tmp_path / "commands")

    assert (
        ran(env, "python", "-c", "import importlib.util as u; print(u.find_spec('temporalio'))")
        == "None"
    )
    assert sys.prefix != sys.base_prefix, "the tests run in an environment of their own"


def test_iris_runs_in_a_program_whatever_modules_the_program_has(tmp_path: Path) -> None:
    """Its working directory comes first for imports of the program, and may have a `click.py`."""
    (tmp_path / "click.py").write_text("raise SystemExit('not this one')")
    env = with_commands(machine(tmp_path / "bin"), tmp_path / "commands")

    assert "iris, version" in ran({**env, "PYTHONPATH": str(tmp_path)}, "iris", "--version")


def test_commands_that_a_program_has_replaced_are_put_back(tmp_path: Path) -> None:
    """Programs of the agent's user can write there; the next program must not run what they
    wrote.
    """
    bare = machine(tmp_path / "bin")
    directory = Path(with_commands(bare, tmp_path / "commands")["PATH"].rpartition(":")[2])
    original = (directory / "iris").read_text()
    (directory / "iris").write_text("x" * len(original))
    (directory / "python").unlink()
    (directory / "python").symlink_to("/bin/false")
    with_commands(bare, tmp_path / "commands")

    assert (directory / "iris").read_text() == original
    assert (directory / "python").samefile(directory / "python3")


def test_a_directory_that_cannot_be_written_leaves_the_machines_commands(tmp_path: Path) -> None:
    """A full disk must not stop a program that needs neither."""
    (tmp_path / "commands").write_text("a file in the way")
    env = with_commands(machine(tmp_path / "bin", "python"), tmp_path / "commands")

    assert ran(env, "python") == "python of the machine"


@pytest.mark.parametrize("mode", [0o700, 0o755])
def test_the_commands_have_the_mode_for_their_users_whatever_the_umask_of_the_agent_is(
    tmp_path: Path, mode: int
) -> None:
    """Where each attempt has a user of its own, that user needs them; elsewhere nobody else
    does.
    """
    before = os.umask(0o077)
    try:
        env = with_commands(machine(tmp_path / "bin"), tmp_path / "commands", mode)
    finally:
        os.umask(before)

    directory = Path(env["PATH"].rpartition(":")[2])
    assert [
        path.stat().st_mode & 0o777 for path in (directory.parent, directory, directory / "iris")
    ] == [mode] * 3
