"""A newcomer: an empty environment, the built wheel, and the program of the README."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.cluster import USER, Cluster, a_home

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]


def run(*command: str | Path, cwd: Path, **env: str) -> str:
    """Runs a command to its end, and returns what it has printed."""
    ran = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_the_program_of_the_readme_runs_on_four_hosts_from_the_wheel_alone(tmp_path: Path) -> None:
    """Less than ten lines, from an installation to a function on every host of a slice."""
    (program,) = re.findall(
        r"### Python\n.*?```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL
    )
    assert len([line for line in program.splitlines() if line]) < 10
    locked = (
        line.removesuffix("\\") for line in (ROOT / "requirements.lock").read_text().splitlines()
    )
    (tmp_path / "pinned.txt").write_text("\n".join(line for line in locked if "--hash" not in line))
    build = [
        sys.executable,
        "-m",
        "build",
        "--installer",
        "uv",
        "--outdir",
        str(tmp_path),
        str(ROOT),
    ]
    run(*build, cwd=tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    uv = Path(sys.executable).with_name("uv")
    run(uv, "venv", "--quiet", "--python", sys.executable, "venv", cwd=tmp_path)
    install = [uv, "pip", "install", "--quiet", "--constraint", "pinned.txt", f"{wheel}[local]"]
    run(*install, cwd=tmp_path, VIRTUAL_ENV=str(tmp_path / "venv"))

    (tmp_path / "program.py").write_text(program)
    with a_home() as home:
        said = run(
            tmp_path / "venv" / "bin" / "python",
            "program.py",
            cwd=tmp_path,
            IRIS_STATE_DIR=str(home),
            IRIS_USER="ada",
        )
    assert said == "[10, 11, 12, 13]\n"


def test_the_first_job_of_the_readme_sends_nothing_and_installs_nothing() -> None:
    """Typed in the checkout, it sent a thousand files and installed thirty packages before it
    printed a word.
    """
    (block,) = re.findall(
        r"```console\n(\$ \. \.venv/bin/activate\n.*?)```",
        (ROOT / "README.md").read_text(),
        re.DOTALL,
    )
    activate, directory, *commands = [line.removeprefix("$ ") for line in block.splitlines()]
    assert (activate, directory) == (". .venv/bin/activate", "mkdir -p ~/first && cd ~/first")
    with a_home() as home:
        cluster = Cluster(home)
        try:
            start, submit = (shlex.split(command)[1:] for command in commands)
            assert "iris submit -- python3" in cluster.iris(*start).out
            ran = cluster.iris(*submit)
            assert ran.out == "hello\n"  # no line of an installation
            assert ran.err.startswith(f"submitted {USER}/hello\n")
        finally:
            cluster.iris("cluster", "stop", "--yes", code=None)
            cluster.clear()
