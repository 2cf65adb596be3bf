"""Decides what is installed for a project that `uv sync` does not read: one without `[project]`."""

from pathlib import Path

from iris.activities.host.projects import INVALID_INPUT, MOST_PROJECT, read
from iris.activities.host.requirement_files import REQUIREMENTS
from iris.activities.host.runtimes.base import CannotStart
from iris.model import setup_files
from iris.model.environments import EnvironmentSpec


def with_its_packages(spec: EnvironmentSpec, directory: Path) -> tuple[EnvironmentSpec, str]:
    """Returns the specification with what the project of this directory declares, and a line for
    the user; empty: there is none.

    Raises:
        CannotStart: the project cannot be installed.
        OSError: a file cannot be read.
    """
    declared: tuple[str, ...] = ()
    if (directory / REQUIREMENTS).is_file():
        declared = (f"-r {REQUIREMENTS}",)
        if not spec.extras:
            return spec.model_copy(update={"pip": (*declared, *spec.pip)}), ""
    script, config = (_text(directory / name) for name in (setup_files.SCRIPT, setup_files.CONFIG))
    has_pyproject = (directory / setup_files.PYPROJECT).exists()
    if setup_files.installs_itself(script, config, has_pyproject=has_pyproject):
        this = f".[{','.join(spec.extras)}]" if spec.extras else "."
        return spec.model_copy(update={"pip": (*declared, this, *spec.pip), "extras": ()}), ""
    if setup_files.lacks_a_build(script, config, has_pyproject=has_pyproject):
        reason = setup_files.cannot_build("the project")
        raise CannotStart(f"set-up failed: {reason}", INVALID_INPUT)
    return spec, setup_files.not_installed({each.name for each in directory.iterdir()})


def _text(file: Path) -> str:
    return read(file, MOST_PROJECT).decode(errors="replace") if file.is_file() else ""
