"""An image whose Python leaves links in the environment that the agent completes between the set-up
steps.

The agent acts for a container as itself: as root of the host. A file of its own in `site-packages`
of the host's Python would run code of the job as root.
"""

import os
import threading
from pathlib import Path

import pytest

from iris.activities.host.environment.steps import _add_scripts, _add_sites
from iris.activities.host.runtimes.cleanup.links import Replaced

UV = Path("/cache/bin/uv")


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """An environment as uv makes it."""
    venv = tmp_path / "environment" / "venv"
    (venv / "lib/python3.11/site-packages").mkdir(parents=True)
    (venv / "bin").mkdir()
    (venv / "bin/python3").touch()
    return venv


def files_of(directory: Path) -> list[str]:
    return sorted(
        str(path.relative_to(directory)) for path in directory.rglob("*") if not path.is_dir()
    )


def test_an_environment_gets_the_directories_and_the_commands(venv: Path) -> None:
    """Without an attack, nothing is missing."""
    _add_sites(venv, ["/opt/packages"], None)
    _add_scripts(venv, UV, None)

    beside = venv / "lib/python3.11/site-packages/_iris_beside.pth"
    assert beside.read_text() == "import site; site.addsitedir('/opt/packages')\n"
    assert [name for name in ("uv", "pip3") if os.access(venv / "bin" / name, os.X_OK)] == [
        "uv",
        "pip3",
    ]
    assert (venv / "bin/uv").read_text() == '#!/bin/sh\nexec /cache/bin/uv "$@"\n'


@pytest.mark.parametrize(
    "link", ["", "lib", "lib/python3.11", "lib/python3.11/site-packages", "bin"]
)
def test_a_link_in_the_place_of_a_directory_leads_the_agent_nowhere(venv: Path, link: str) -> None:
    """Such as to the directory of the host's Python."""
    theirs = venv.parent / "moved"
    (venv / link).rename(theirs)
    (venv / link).symlink_to(theirs)
    before = files_of(theirs)

    with pytest.raises(Replaced):
        (_add_scripts if link == "bin" else _add_sites)(
            venv, UV if link == "bin" else ["/job"], None
        )  # type: ignore[operator]

    assert files_of(theirs) == before


def test_a_link_in_the_place_of_a_file_is_not_followed(venv: Path) -> None:
    """Neither to a file that is there, nor to one that would be made."""
    target, new = venv.parent / "target", venv.parent / "new"
    target.write_text("of the host")
    (venv / "lib/python3.11/site-packages/_iris_beside.pth").symlink_to(target)
    (venv / "bin/uv").symlink_to(new)
    (venv / "bin/pip3").symlink_to(new)
    _add_sites(venv, ["/job"], None)
    _add_scripts(venv, UV, None)

    assert (target.read_text(), new.exists()) == ("of the host", False)


def test_a_pipe_in_the_place_of_a_file_does_not_block_the_agent(venv: Path) -> None:
    """The threads of an agent are limited: each that waits for a reader of a pipe would be lost."""
    os.mkfifo(venv / "lib/python3.11/site-packages/_iris_beside.pth")
    os.mkfifo(venv / "bin/uv")

    def complete() -> None:
        _add_sites(venv, ["/job"], None)
        _add_scripts(venv, UV, None)

    thread = threading.Thread(target=complete, daemon=True)
    thread.start()
    thread.join(120)

    assert not thread.is_alive()
