"""Functions of projects, on a cluster of a machine whose `python` is another version than that of
the program, if it has one.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import iris
from iris.model.states import JobState
from tests.e2e.cluster import Cluster
from tests.pythons import VERSION, a_real_other_python

pytestmark = pytest.mark.long

#: A build backend without dependencies: it packs the packages below `src`.
BACKEND = """
import pathlib, tomllib, zipfile

def build_wheel(directory, config_settings=None, metadata_directory=None):
    name = tomllib.loads(pathlib.Path("pyproject.toml").read_text())["project"]["name"]
    info = f"{name}-1.dist-info"
    with zipfile.ZipFile(pathlib.Path(directory, f"{name}-1-py3-none-any.whl"), "w") as wheel:
        for file in pathlib.Path("src").rglob("*.py"):
            wheel.writestr(str(file.relative_to("src")), file.read_text())
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\\nName: {name}\\nVersion: 1\\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nGenerator: tests\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(f"{info}/RECORD", "")
    return f"{name}-1-py3-none-any.whl"
"""
PROJECT = """
[project]
name = "{name}"
version = "1"
requires-python = ">=3.11"
dependencies = {dependencies}
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""
TRAIN = """
import sys

from libdouble import double


class Result:
    def __init__(self, value):
        self.value = value
        self.place = __file__
        self.python = "%d.%d" % sys.version_info[:2]


def train(number):
    return Result(double(number))
"""


def package(directory: Path, name: str, dependencies: str = "[]", **modules: str) -> Path:
    """Makes a project in the src layout."""
    source = directory / "src" / name
    source.mkdir(parents=True)
    (directory / "pyproject.toml").write_text(PROJECT.format(name=name, dependencies=dependencies))
    (directory / "backend.py").write_text(BACKEND)
    for module, text in {"__init__": "", **modules}.items():
        (source / f"{module}.py").write_text(text)
    return directory


@pytest.fixture(scope="module")
def client() -> Iterator[iris.IrisClient]:
    """A client of a cluster whose hosts find a Python of another version first."""
    with (
        tempfile.TemporaryDirectory(prefix="iris-") as directory,
        tempfile.TemporaryDirectory() as programs,
        pytest.MonkeyPatch.context() as patch,
    ):
        version, python = a_real_other_python()
        for name in ("python", "python3", f"python{version}"):
            Path(programs, name).symlink_to(python)
        patch.setenv("IRIS_STATE_DIR", directory)
        patch.setenv("IRIS_USER", "ada")
        patch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
        patch.chdir(programs)
        cluster = Cluster(Path(directory))
        with iris.IrisClient.local() as client:
            yield client
        cluster.clear()


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project whose function uses a package of the same directory. The program imports both."""
    root = package(tmp_path / "study", "study", '["libdouble"]', train=TRAIN)
    with (root / "pyproject.toml").open("a") as file:
        file.write('[tool.uv.sources]\nlibdouble = {path = "libs/libdouble"}\n')
    library = package(
        root / "libs" / "libdouble",
        "libdouble",
        __init__="def double(number):\n    return 2 * number\n",
    )
    monkeypatch.syspath_prepend(str(root / "src"))
    monkeypatch.syspath_prepend(str(library / "src"))
    yield root
    for name in ("study", "study.train", "libdouble"):
        sys.modules.pop(name, None)


def test_a_function_of_a_project_runs_with_what_its_project_installs(
    client: iris.IrisClient, study: Path
) -> None:
    """The src layout and a path dependency: the job imports the installed package, and the result's
    class is the program's.
    """
    from study.train import Result, train  # type: ignore[import-not-found]

    result = client.submit(train, 21, workspace=study, timeout=300).result()

    assert isinstance(result, Result)
    assert (result.value, result.python) == (42, VERSION)
    assert "site-packages" in result.place


def test_a_program_of_the_machine_still_gets_the_machines_python(client: iris.IrisClient) -> None:
    """The version is that of functions. Otherwise the tests above would show nothing."""
    job = client.submit(
        "python",
        "-c",
        "import sys; sys.exit(sys.argv[1] == '%d.%d' % sys.version_info[:2])",
        VERSION,
    )

    assert job.wait().state is JobState.SUCCEEDED


def version_and_package() -> tuple[str, str]:
    import yaml

    return f"{sys.version_info.major}.{sys.version_info.minor}", yaml.safe_load(
        "a package of this program"
    )


def test_a_function_without_an_environment_runs_in_the_interpreter_of_its_program(
    client: iris.IrisClient,
) -> None:
    """A notebook's kernel is seldom the machine's `python`."""
    assert client.submit(version_and_package).result() == (VERSION, "a package of this program")


def version_and_double(number: int) -> tuple[str, int]:
    import libdouble  # type: ignore[import-not-found]

    return f"{sys.version_info.major}.{sys.version_info.minor}", libdouble.double(number)


def test_a_function_with_packages_gets_an_environment_of_its_version(
    client: iris.IrisClient, study: Path
) -> None:
    """Without a project, nothing else says which Python uv should take."""
    (study / "libs" / "libdouble").rename(study / "libs" / "double")
    environment = iris.EnvironmentSpec(pip=("./double",))
    job = client.submit(
        version_and_double, 4, workspace=study / "libs", environment=environment, timeout=300
    )

    assert job.result() == (VERSION, 8)


def test_a_function_with_its_own_commands_gets_its_version(client: iris.IrisClient) -> None:
    """They install into an environment that is based on a Python of the host."""
    job = client.submit(abs, -1, environment=iris.EnvironmentSpec(setup=("true",)), timeout=300)

    assert job.result() == 1
