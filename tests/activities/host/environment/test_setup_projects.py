"""Environments of projects that are more than one `pyproject.toml`: requirements files, workspaces,
versions from git.
"""

import subprocess

import pytest
import uv

from iris.activities.host.runtimes.base import JobFault
from tests.activities.host.environment.test_setup import BACKEND, PACKAGE, Host, a_wheel, host

__all__ = ["host"]


async def test_a_requirements_file_alone_is_a_project(host: Host) -> None:
    """Many projects have nothing else; their programs must not start without their packages."""
    host.write(
        **{
            "requirements.txt": "tiny  # small\n-r more.txt\n",
            "more.txt": "other\n",
            "helper.py": "here = True",
        }
    )
    ready = await host.ready()

    assert (
        await host.sees(ready, "import tiny, other, helper; print(tiny.version, other.version)")
        == "1.0 1.0"
    )
    assert "[iris] uv pip install -r requirements.txt (" in host.told
    ready.release()


async def test_a_requirements_file_is_installed_anew_when_it_or_one_that_it_includes_changes(
    host: Host,
) -> None:
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
    host.write(
        **{"requirements.txt": "tiny\n", "dev/requirements.txt": "--prefer-binary\nother==1.0\n"}
    )
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


@pytest.mark.long
async def test_a_package_beside_a_requirements_file_is_installed_as_it_is_now(host: Host) -> None:
    """Also if it is written as an editable one: the directory of the attempt is gone when the next
    one uses the environment.
    """
    host.write(
        **{"lib/pyproject.toml": PACKAGE, "lib/backend.py": BACKEND, "lib/study.py": "print('one')"}
    )
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
    with pytest.raises(JobFault, match=r"File not found: `?nowhere\.txt"):
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


@pytest.mark.long
@pytest.mark.parametrize("locked", [False, True])
async def test_a_member_of_a_workspace_finds_the_packages_beside_it(
    host: Host, locked: bool
) -> None:
    """The lock and the sources are the root's; the program starts in the member's directory."""
    a_workspace(host)
    if locked:
        index = {"UV_INDEX_URL": host.index.url, "PATH": host.env["PATH"], "HOME": str(host.root)}
        subprocess.run(  # noqa: ASYNC221
            [uv.find_uv_bin(), "lock", "--quiet"], cwd=host.workdir, env=index, check=True
        )
        a_wheel(host.wheels, "tiny", "2.0")
    before = await host.ready(project="apps/train")
    if not locked:
        host.next_attempt()
    unpacked(host, **{"libs/study/study.py": "version = 'two'"})
    ready = await host.ready(project="apps/train")

    assert ("--locked" in host.told) == locked
    assert (
        await host.sees(before, "import study, tiny; print(study.version, tiny.version)")
        == "one 1.0"
    )
    assert (
        await host.sees(ready, "import study, tiny; print(study.version, tiny.version)")
        == "two 1.0"
    )
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
        facts = f"Metadata-Version: 2.1\\nName: study\\nVersion: {version}\\n"
        wheel.writestr(f"{info}/METADATA", facts)
        tags = "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
        wheel.writestr(f"{info}/WHEEL", tags)
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


# -- setup.py, setup.cfg and what is not read ----------------------------------------------------

#: Stands for setuptools, which the index of these tests has not: it runs `setup.py` and packs the
#: modules.
SETUPTOOLS = """
import os, sys, types, zipfile
asked = {}
def setup(**words): asked.update(words)
def build_wheel(directory, settings=None, metadata=None):
    if os.path.exists("setup.py"):
        exec(open("setup.py").read(), {"__name__": "__main__"})
    else:
        asked.update(name="study", version="1", py_modules=["study"], install_requires=["tiny"])
    name = "{name}-{version}-py3-none-any.whl".format(**asked)
    lines = ["Metadata-Version: 2.1", "Name: " + asked["name"], "Version: " + asked["version"]]
    lines += ["Requires-Dist: " + each for each in asked.get("install_requires", ())]
    for extra, packages in asked.get("extras_require", {}).items():
        lines += ["Provides-Extra: " + extra]
        lines += [f"Requires-Dist: {each}; extra == '{extra}'" for each in packages]
    info = "{name}-{version}.dist-info/".format(**asked)
    with zipfile.ZipFile(os.path.join(directory, name), "w") as wheel:
        for module in asked.get("py_modules", ()):
            wheel.write(module + ".py")
        wheel.writestr(info + "METADATA", "\\n".join(lines) + "\\n")
        tags = "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
        wheel.writestr(info + "WHEEL", tags)
        wheel.writestr(info + "RECORD", "")
    return name
build_meta = sys.modules["setuptools.build_meta"] = types.ModuleType("build_meta")
build_meta.build_wheel = build_wheel
build_meta.__legacy__ = build_meta
"""
SCRIPT = """
from setuptools import setup
setup(
    name="study", version="1", py_modules=["study"],
    install_requires=["tiny"], extras_require={"more": ["other"]},
)
"""
CONFIG = (
    "[metadata]\nname = study\nversion = 1\n[options]\npy_modules = study\ninstall_requires ="
    " tiny\n"
)


@pytest.fixture
def old(host: Host) -> Host:
    """A host whose index has setuptools."""
    a_wheel(host.wheels, "setuptools", "80", SETUPTOOLS)
    return host


@pytest.mark.parametrize(
    "files",
    [
        {"setup.py": SCRIPT},
        {"setup.py": SCRIPT, "pyproject": "[tool.black]\nline-length = 100\n"},
        {"setup.cfg": CONFIG, "pyproject": ""},
        {
            "setup.cfg": CONFIG,
            "pyproject": (
                '[build-system]\nrequires = ["setuptools"]\nbuild-backend ='
                ' "setuptools.build_meta"\n'
            ),
        },
    ],
    ids=["setup.py", "setup.py and tools", "setup.cfg", "setup.cfg and its build"],
)
async def test_a_project_of_setuptools_alone_is_installed(old: Host, files: dict[str, str]) -> None:
    """Its program would start without its packages, and fail at its first import."""
    old.write(**files, **{"study.py": "import tiny; version = tiny.version"})
    ready = await old.ready()

    assert await old.sees(ready, "import study; print(study.version)") == "1.0"
    assert "[iris] uv pip install . (" in old.told
    ready.release()


@pytest.mark.long
async def test_the_extras_of_a_setup_script_are_installed(old: Host) -> None:
    """As those of a `pyproject.toml`; a requirements file beside it stays what is installed."""
    old.write(**{"setup.py": SCRIPT, "study.py": "", "requirements.txt": "linter\n"})
    plain = await old.ready()
    with_extra = await old.ready(extras=("more",))

    assert "ModuleNotFoundError" in await old.sees(plain, "import linter, tiny")
    assert await old.sees(with_extra, "import linter, tiny, other; print(other.version)") == "1.0"
    plain.release()
    with_extra.release()


@pytest.mark.long
async def test_a_changed_module_of_a_setup_script_is_installed_as_it_is_now(old: Host) -> None:
    """The environment has a copy of it, which another job must not get."""
    old.write(**{"setup.py": SCRIPT, "study.py": "print('one')"})
    first = await old.ready()
    unpacked(old, **{"study.py": "print('two')"})
    second = await old.ready()
    old.workdir.rename(old.root / "gone")
    old.workdir.mkdir()

    assert [await old.sees(each, "import study") for each in (first, second)] == ["one", "two"]
    first.release()
    second.release()


async def test_a_setup_cfg_that_nothing_builds_is_refused_with_the_remedy(host: Host) -> None:
    """No tool installs it, so the remedy is the project's to apply."""
    host.write(**{"setup.cfg": CONFIG})
    with pytest.raises(
        JobFault,
        match=r"add an empty pyproject\.toml",
    ) as caught:
        await host.ready()

    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("files", "line"),
    [
        (
            {"environment.yml": "dependencies: [numpy]"},
            "environment.yml is for conda, and Iris does not read it: nothing is",
        ),
        (
            {"Pipfile": "[packages]\nnumpy = '*'\n"},
            "Pipfile is for Pipenv, and Iris does not read it: nothing is installed",
        ),
        (
            {"pyproject": "[tool.poetry]\nname = 'study'\n"},
            "pyproject.toml has no [project]: nothing is installed for it; declare",
        ),
    ],
    ids=["conda", "Pipenv", "tools"],
)
async def test_a_project_for_which_nothing_is_installed_says_so_in_one_line(
    host: Host, files: dict[str, str], line: str
) -> None:
    """Otherwise the first that its user hears is an import that fails."""
    host.write(**files)
    ready = await host.ready()

    assert ready.env == host.env
    assert host.told.startswith(f"[iris] {line}")
    assert host.told.count("\n") == 1


@pytest.mark.parametrize(
    "files",
    [
        {"setup.py": "def setup(): print('prepares the data')"},
        {"setup.cfg": "[flake8]\nmax-line-length = 100\n"},
        {"setup.cfg": "not = a [section"},
    ],
    ids=["another program", "a linter's", "unreadable"],
)
async def test_files_of_setuptools_names_that_declare_nothing_are_left_alone(
    host: Host, files: dict[str, str]
) -> None:
    """A program called `setup.py` must not run before its time; many a `setup.cfg` only configures
    a linter.
    """
    host.write(**files)
    ready = await host.ready()

    assert ready.env == host.env
    assert host.environments == []
