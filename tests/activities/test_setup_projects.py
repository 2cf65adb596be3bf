"""Environments of projects that are more than one `pyproject.toml`: requirements files, workspaces, versions from git."""

import subprocess

import pytest
import uv

from iris.activities.host.runtimes.base import CannotStart
from tests.activities.test_setup import BACKEND, PACKAGE, Host, a_wheel, host

__all__ = ["host"]


async def test_a_requirements_file_alone_is_a_project(host: Host) -> None:
    """Many projects have nothing else; their programs must not start without their packages."""
    host.write(**{"requirements.txt": "tiny  # small\n-r more.txt\n", "more.txt": "other\n", "helper.py": "here = True"})
    ready = await host.ready()

    assert await host.sees(ready, "import tiny, other, helper; print(tiny.version, other.version)") == "1.0 1.0"
    assert "[iris] uv pip install -r requirements.txt (" in host.told
    ready.release()


async def test_a_requirements_file_is_installed_anew_when_it_or_one_that_it_includes_changes(host: Host) -> None:
    """An unchanged one finds its environment, whatever else changes."""
    host.write(**{"requirements.txt": "-r more.txt\n", "more.txt": "tiny\n"})
    (await host.ready()).release()
    host.write(**{"train.py": "print(1)"})
    (await host.ready()).release()
    assert len(host.environments) == 1

    host.write(**{"more.txt": "other\n"})
    ready = await host.ready()
    assert await host.sees(ready, "import other; print(other.version)") == "1.0"
    assert "ModuleNotFoundError" in await host.sees(ready, "import tiny")
    ready.release()


async def test_a_requirements_file_of_any_name_is_added_to_a_project(host: Host) -> None:
    """`--pip '-r requirements-dev.txt'`: what one job needs need not be everyone's."""
    host.write(**{"requirements.txt": "tiny\n", "dev/requirements.txt": "--prefer-binary\nother==1.0\n"})
    ready = await host.ready(pip=("-r dev/requirements.txt",))

    assert await host.sees(ready, "import tiny, other; print(other.version)") == "1.0"
    ready.release()


async def test_no_sync_installs_nothing_of_a_requirements_file(host: Host) -> None:
    """The image may have it all."""
    host.write(**{"requirements.txt": "tiny\n"})
    ready = await host.ready(sync=False)

    assert ready.env == host.env
    assert host.environments == []


def unpacked(host: Host, **changed: str) -> None:
    """Another attempt's bundle: all its files are new."""
    for file in host.workdir.rglob("*.*"):
        if file.is_file() and file.name != "uv.lock":
            file.write_bytes(file.read_bytes())
    host.write(**changed)


async def test_a_package_beside_a_requirements_file_is_installed_as_it_is_now(host: Host) -> None:
    """Also if it is written as an editable one: the directory of the attempt is gone when the next one uses the environment."""
    host.write(**{"lib/pyproject.toml": PACKAGE, "lib/backend.py": BACKEND, "lib/study.py": "print('one')"})
    host.write(**{"requirements.txt": "-e ./lib\n"})
    first = await host.ready()
    unpacked(host, **{"lib/study.py": "print('two')"})
    second = await host.ready()
    host.workdir.rename(host.root / "gone")
    host.workdir.mkdir()

    assert await host.sees(first, "import study") == "one"
    assert await host.sees(second, "import study") == "two"
    first.release()
    second.release()


async def test_a_requirements_file_that_is_missing_is_named(host: Host) -> None:
    """It may be one that git ignores."""
    with pytest.raises(CannotStart, match=r"File not found: `?nowhere\.txt"):
        await host.ready(pip=("-r nowhere.txt",))


MEMBERS = """
[tool.uv.workspace]
members = ["apps/*", "libs/*"]
[tool.uv.sources]
study = { workspace = true }
"""
APP = """
[project]
name = "app"
version = "1"
requires-python = ">=3.11"
dependencies = ["study", "tiny"]
"""


def a_workspace(host: Host) -> None:
    """A workspace whose application depends on the package beside it."""
    host.write(
        pyproject=MEMBERS,
        **{
            "apps/train/pyproject.toml": APP,
            "apps/train/helper.py": "here = True",
            "libs/study/pyproject.toml": PACKAGE,
            "libs/study/backend.py": BACKEND,
            "libs/study/study.py": "version = 'one'",
        },
    )


@pytest.mark.parametrize("locked", [False, True])
async def test_a_member_of_a_workspace_finds_the_packages_beside_it(host: Host, locked: bool) -> None:
    """The lock and the sources are the root's; the program starts in the member's directory."""
    a_workspace(host)
    if locked:
        index = {"UV_INDEX_URL": host.index.url, "PATH": host.env["PATH"], "HOME": str(host.root)}
        subprocess.run([uv.find_uv_bin(), "lock", "--quiet"], cwd=host.workdir, env=index, check=True)  # noqa: ASYNC221
        a_wheel(host.wheels, "tiny", "2.0")
    before = await host.ready(project="apps/train")
    if not locked:
        host.next_attempt()
    unpacked(host, **{"libs/study/study.py": "version = 'two'"})
    ready = await host.ready(project="apps/train")

    assert ("--locked" in host.told) == locked
    assert await host.sees(before, "import study, tiny; print(study.version, tiny.version)") == "one 1.0"
    assert await host.sees(ready, "import study, tiny; print(study.version, tiny.version)") == "two 1.0"
    assert ready.env["PYTHONPATH"] == str(host.workdir / "apps/train")
    before.release()
    ready.release()


#: A build backend that takes the version where setuptools-scm takes it.
VERSIONED = """
import os, zipfile
version = os.environ["SETUPTOOLS_SCM_PRETEND_VERSION_FOR_STUDY"]
def build_wheel(directory, settings=None, metadata=None):
    name, info = f"study-{version}-py3-none-any.whl", f"study-{version}.dist-info"
    with zipfile.ZipFile(f"{directory}/{name}", "w") as wheel:
        wheel.write("study.py")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\\nName: study\\nVersion: {version}\\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(f"{info}/RECORD", "study.py,,\\n")
    return name
build_editable = build_wheel
"""


async def test_a_project_gets_the_version_that_its_bundle_has_no_git_for(host: Host) -> None:
    """Its build would fail, or be of version 0; and another commit is another version."""
    dynamic = PACKAGE.replace('version = "1"', 'dynamic = ["version"]')
    host.write(pyproject=dynamic, **{"backend.py": VERSIONED, "study.py": "x = 1"})
    code = "import importlib.metadata; print(importlib.metadata.version('study'))"
    for version in ("1.2.3", "1.2.4.dev1+gabc"):
        ready = await host.ready(build_env={"SETUPTOOLS_SCM_PRETEND_VERSION_FOR_STUDY": version})
        assert await host.sees(ready, code) == version
        assert "SETUPTOOLS_SCM_PRETEND_VERSION_FOR_STUDY" not in ready.env
        ready.release()
