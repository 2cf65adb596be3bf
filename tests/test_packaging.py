"""How four folders become one package, `iris`."""

import importlib
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

import iris

ROOT = Path(__file__).parent.parent
ROLES = ("workflows", "activities", "platforms", "worker_agents")


def git(*words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout


@pytest.mark.parametrize("role", ROLES)
def test_a_role_is_committed_as_a_relative_link(role: str) -> None:
    """An absolute link works on one machine only, and a copy would be a second truth."""
    mode = git("ls-files", "--stage", f"iris/{role}").split()[0]

    assert mode == "120000", "not committed as a link"
    assert git("cat-file", "blob", f":iris/{role}").strip() == f"../{role}"


@pytest.mark.parametrize("role", ROLES)
def test_a_role_is_imported_from_its_own_folder(role: str) -> None:
    """`import iris.workflows` is this repository's, whatever else is installed."""
    package = importlib.import_module(f"iris.{role}")

    assert package.__file__ is not None
    assert Path(package.__file__).resolve() == ROOT / role / "__init__.py"


def test_every_folder_with_python_files_is_a_package() -> None:
    """One without `__init__.py` works from a checkout and is missing from the wheel."""
    files = [file for folder in ("iris", *ROLES) for file in (ROOT / folder).rglob("*.py")]
    folders = {file.parent for file in files}

    assert len(folders) > len(ROLES)
    assert [
        str(folder.relative_to(ROOT))
        for folder in sorted(folders)
        if not (folder / "__init__.py").is_file()
    ] == []


def test_the_installed_version_is_the_one_in_pyproject() -> None:
    """What `iris --version` says is what was built from these sources."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert metadata.version("iris-temporal") == project["version"]


def test_a_public_name_is_imported_from_the_package_itself() -> None:
    """Users' programs must not depend on where a class is defined."""
    for name in iris.__all__:
        assert getattr(iris, name).__name__ == name


def test_a_shell_completes_the_public_names_before_they_are_loaded() -> None:
    """They are loaded on first use; `dir` is what a notebook's TAB key shows."""
    listed = subprocess.run(
        [sys.executable, "-c", "import iris; print(*dir(iris))"],
        check=True,
        capture_output=True,
        text=True,
    )

    assert {*iris.__all__, "__doc__"} <= {*listed.stdout.split()}


def test_importing_the_package_loads_nothing_of_it() -> None:
    """The command line and the shim's neighbours pay for every import at each start."""
    code = (
        "import sys, iris; print([name for name in sys.modules if name.startswith(('iris.',"
        " 'temporalio', 'pydantic'))])"
    )

    assert (
        subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True
        ).stdout
        == "[]\n"
    )


def test_the_package_tells_its_licence_and_no_author() -> None:
    """Indexes show this, and lawyers look for the text."""
    shown = metadata.metadata("iris-temporal")

    assert shown["License-Expression"] == "Apache-2.0"
    assert shown.get_all("License-File") == ["LICENSE"]
    assert (ROOT / "LICENSE").read_text().lstrip().startswith("Apache License")
    assert shown["Author"] is shown["Author-email"] is None


def test_every_extra_says_what_it_brings() -> None:
    """Its name alone does not tell who needs it; the guide for installing has a row for each."""
    extras = metadata.metadata("iris-temporal").get_all("Provides-Extra")
    guide = (ROOT / "docs/install.md").read_text()

    assert extras
    assert [extra for extra in extras if f"| `{extra}` |" not in guide] == []
