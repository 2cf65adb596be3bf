"""Which interpreter the job of a function gets: of the version that pickles, on this machine the
program's own.
"""

import itertools
import os
import sys
import tarfile
from collections import defaultdict
from pathlib import Path
from typing import Any, Unpack

import pytest

from iris.client.build.job import make_job
from iris.client.build.options import JobOptions
from iris.client.build.parent import EnclosingJob
from iris.client.connect.clusters import ClusterRecord, ProcessRef
from iris.model import store_paths
from iris.model.errors import InvalidValue
from iris.model.job import bundles
from iris.model.job.environments import EnvironmentSpec
from iris.model.job.spec import JobSpec
from iris.storage.object_store import Store
from tests.builders import a_spec
from tests.pythons import VERSION

#: The minor version after the one that runs the tests.
NEXT = f"{sys.version_info.major}.{sys.version_info.minor + 1}"


class Client:
    """Makes jobs for a cluster that is never reached."""

    def __init__(self, directory: Path, *, here: bool) -> None:
        self._dir = directory
        (directory / "store").mkdir(exist_ok=True)
        url = (directory / "store").as_uri()
        supervisor = ProcessRef.of(os.getpid()) if here else None
        self.record = ClusterRecord(
            name="local", address="127.0.0.1:1", store=url, supervisor=supervisor
        )

    async def job(
        self, *, workspace: Path | bool = False, **options: Unpack[JobOptions]
    ) -> JobSpec:
        return await make_job(self.record, abs, (-1,), {}, workspace, **options)

    async def child(self, parent: JobSpec) -> JobSpec:
        """A job that a program of the parent submits from the directory in which it was started."""
        number = defaultdict[str, "itertools.count[int]"](lambda: itertools.count(1))
        within = EnclosingJob(
            parent, "ada/top", "r", "r", 0, 1, 1, Path.cwd(), registers=True, submitted=number
        )
        return await make_job(self.record, abs, (-1,), {}, None, within)

    async def interpreter(self, **options: Any) -> str | None:
        """The interpreter that the job's call names."""
        spec = await self.job(**options)
        assert spec.call is not None
        file = self._dir / "call.tar"
        assert await Store(self.record.store).get_file(store_paths.bundle(spec.call.sha256), file)
        with tarfile.open(file) as archive:
            named = (
                archive.extractfile(bundles.PYTHON)
                if bundles.PYTHON in archive.getnames()
                else None
            )
            return named.read().decode() if named is not None else None


@pytest.fixture
def here(tmp_path: Path) -> Client:
    """A client of a cluster on this machine."""
    return Client(tmp_path, here=True)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Client:
    """A client of a cluster of other machines."""
    return Client(tmp_path, here=False)


def project(directory: Path, requires: str, **files: str) -> Path:
    """Makes a project that requires such a Python."""
    (directory / "study").mkdir()
    text = f'[project]\nname = "study"\nversion = "1"\nrequires-python = "{requires}"\n'
    (directory / "study" / "pyproject.toml").write_text(text)
    for name, content in files.items():
        (directory / "study" / name.replace("python_version", ".python-version")).write_text(
            content
        )
    return directory / "study"


async def test_on_this_machine_a_function_runs_in_the_interpreter_of_its_program(
    here: Client, tmp_path: Path
) -> None:
    """It has what its user has installed for the program, such as numpy and Iris. A directory of
    plain files changes nothing.
    """
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "data.txt").touch()

    assert await here.interpreter() == sys.executable
    assert await here.interpreter(workspace=tmp_path / "notes") == sys.executable


async def test_a_function_with_an_environment_of_its_own_runs_in_that(
    here: Client, tmp_path: Path
) -> None:
    """The user has said what it needs; another interpreter would lack it."""
    own: list[dict[str, Any]] = [
        {"environment": EnvironmentSpec(pip=("numpy",))},
        {"environment": EnvironmentSpec(setup=("true",))},
        {"image": "python:3.12"},
        {"workspace": project(tmp_path, ">=3.8")},
    ]
    for options in own:
        assert await here.interpreter(**options) is None, options


async def test_on_other_machines_nothing_is_said_of_an_interpreter_of_this_one(
    elsewhere: Client,
) -> None:
    """They may have another Python at the same path. The control plane of machines over SSH may be
    on this one.
    """
    assert await elsewhere.interpreter() is None
    elsewhere.record = elsewhere.record.model_copy(
        update={"supervisor": ProcessRef.of(os.getpid()), "over_ssh": True}
    )
    assert await elsewhere.interpreter() is None


async def test_the_environment_of_a_function_has_the_version_that_has_pickled_it(
    elsewhere: Client, tmp_path: Path
) -> None:
    """Otherwise uv takes the first Python that it finds on the host."""
    packages = await elsewhere.job(environment=EnvironmentSpec(pip=("numpy",)))
    synced = await elsewhere.job(
        workspace=project(tmp_path, f">=3.8,<{NEXT}", python_version=f"# pinned\n{VERSION}.1\n")
    )

    assert (packages.environment.python, synced.environment.python) == (VERSION, VERSION)


@pytest.mark.parametrize(
    ("requires", "pin", "problem"),
    [
        (
            f">={NEXT}",
            "",
            (
                rf"'{VERSION}' is excluded by requires-python = '>={NEXT}' in .*pyproject.toml;"
                r" submit from"
            ),
        ),
        (f"=={NEXT}.*", "", "is excluded by"),
        (f">=3.8, !={VERSION}.*", "", "is excluded by"),
        ("~=3.6.1", "", "is excluded by"),
        ("<3.9", "", "is excluded by"),
        (
            ">=3.8",
            f"{NEXT}\n",
            rf"'{VERSION}' differs from the version in .*\.python-version, {NEXT}",
        ),
    ],
)
async def test_a_project_for_another_version_of_python_is_refused_before_the_submission(
    elsewhere: Client, tmp_path: Path, requires: str, pin: str, problem: str
) -> None:
    """No machine is paid for an environment in which the function cannot be unpickled."""
    with pytest.raises(InvalidValue, match=problem):
        await elsewhere.job(
            workspace=project(tmp_path, requires, **({"python_version": pin} if pin else {}))
        )


@pytest.mark.parametrize(
    "requires",
    [
        f">={VERSION}",
        f"~={VERSION}",
        f"=={VERSION}.*",
        f"<={VERSION}.1",
        f">{VERSION}.0",
        "",
        ">=3.8.dev0",
    ],
)
@pytest.mark.parametrize("pin", ["", f"cpython@{VERSION}", "pypy@3.10"])
async def test_a_project_that_admits_the_version_of_the_program_is_accepted(
    elsewhere: Client, tmp_path: Path, requires: str, pin: str
) -> None:
    """Also one whose requirement only uv understands: uv then says what is wrong."""
    await elsewhere.job(
        workspace=project(tmp_path, requires, **({"python_version": pin} if pin else {}))
    )


async def test_the_child_of_a_program_in_another_python_gets_the_version_of_that_program(
    here: Client,
) -> None:
    """A function may start a script with another Python, which submits jobs: they inherit the
    environment without its version.
    """
    parent = a_spec(environment=EnvironmentSpec(pip=("numpy",), python="3.1"))

    assert (await here.child(parent)).environment == EnvironmentSpec(pip=("numpy",), python=VERSION)


async def test_a_version_that_is_asked_for_is_refused_if_it_cannot_unpickle_the_function(
    elsewhere: Client,
) -> None:
    """The version of an environment is for programs; a function has one already."""
    with pytest.raises(
        InvalidValue, match=rf"python: '3.1' cannot run a function that Python {VERSION} pickles"
    ):
        await elsewhere.job(environment=EnvironmentSpec(python="3.1"))
    with pytest.raises(
        ValueError, match=r"is not a minor version of Python; write one such as 3\.12"
    ):
        EnvironmentSpec(python="3.12.1")
