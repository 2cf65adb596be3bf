"""Functions that travel to a job's interpreter, and their results that come back: each call is run
by a real interpreter.
"""

import asyncio
import importlib.util
import json
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

import iris
from iris.client.build.job import make_job
from iris.client.connect.clusters import ClusterRecord
from iris.client.functions.call import function_name, pack_call
from iris.client.functions.result import NoResult, Raised, RemoteTraceback, read_result
from iris.model import names, store_paths
from iris.model.errors import InvalidValue, Rejected
from iris.model.job import bundles
from iris.storage.object_store import Store
from tests.client import halves

JOB, RUN = "ada/call", "0198c0de-aaaa-bbbb-cccc-0123456789ab"
#: What a host says to a task of a job of four.
IDENTITY = {
    names.ENV_CLUSTER: "local",
    names.ENV_JOB_ID: JOB,
    names.ENV_TASK_INDEX: "3",
    names.ENV_NUM_TASKS: "4",
    names.ENV_ATTEMPT: "1",
    names.ENV_HOST_ID: "h1",
    names.ENV_SLICE_ID: "s1",
    names.ENV_WORKDIR: "/work",
    names.ENV_CHECKPOINT_DIR: "/checkpoint",
    names.env_port("http"): "8080",
}


class Odd(Exception):
    """It cannot be restored: its arguments are not those of its constructor."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")


class Ran:
    """A call that a job's interpreter has run in a directory of its own."""

    def __init__(
        self, directory: Path, packed_in: Path, process: "subprocess.CompletedProcess[str]"
    ) -> None:
        self.call = packed_in
        self.code, self.out, self.err = process.returncode, process.stdout, process.stderr
        self._store = directory / "store"

    async def result(self) -> Any:
        return await read_result(
            Store(self._store.as_uri()), JOB, RUN, 0, 1, patience=timedelta(milliseconds=1)
        )


class Place:
    """What a host makes of a call, without the host: the unpacked call, a working directory and an
    output directory.
    """

    def __init__(self, directory: Path) -> None:
        self._dir = directory
        self.work = directory / "work"
        self.work.mkdir()

    def run(
        self,
        function: Callable[..., Any],
        *args: Any,
        workspace: Path | None = None,
        changed: Callable[[Path], Any] = lambda _: None,
        params: Sequence[Mapping[str, Any]] | None = None,
        **kwargs: Any,
    ) -> Ran:
        """Runs the call with nothing of Iris on the interpreter's path, as task 1 of an array if it
        has parameters.

        Args:
            changed: changes the unpacked call before it is run.
        """
        call = self._dir / "call"
        with (
            pack_call(function, args, kwargs, workspace, params) as packed,
            tarfile.open(fileobj=packed.archive) as archive,
        ):
            archive.extractall(call, filter="data")
        changed(call)
        outputs = self._dir / "store" / store_paths.attempt_outputs(JOB, RUN, 0, 1)
        outputs.mkdir(parents=True)
        # Isolated and without site-packages: as in an image that has never heard of Iris.
        command = [sys.executable, "-I", "-S", str(call / bundles.SCRIPT)]
        env = {
            **IDENTITY,
            "IRIS_OUTPUT_DIR": str(outputs),
            **({"IRIS_ARRAY_INDEX": "1"} if params is not None else {}),
        }
        process = subprocess.run(
            command, cwd=self.work, env=env, capture_output=True, text=True, timeout=120
        )
        return Ran(self._dir, call, process)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def module_in(directory: Path, name: str, source: str) -> Any:
    """Imports a module of the user's from a directory that is not on the path."""
    (directory / f"{name}.py").write_text(source)
    spec = importlib.util.spec_from_file_location(name, directory / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_a_function_returns_its_result_from_an_interpreter_without_iris(place: Place) -> None:
    """Arguments, closures and results travel; what the function prints is the task's output."""
    factor = 3

    def scaled(numbers: list[int], *, plus: int) -> dict[int, int]:
        sys.stdout.write(f"scaling {numbers}\n")
        return {number: number * factor + plus for number in numbers}

    ran = place.run(scaled, [1, 2], plus=10)

    assert (ran.code, ran.out) == (0, "scaling [1, 2]\n"), ran.err
    assert await ran.result() == {1: 13, 2: 16}


async def test_a_task_of_an_array_gets_its_own_arguments(place: Place) -> None:
    """Any values travel, and not only texts. They come after those that all tasks have."""

    def add(numbers: list[int], *, to: complex, plus: int = 0) -> complex:
        return sum(numbers) + to + plus

    ran = place.run(add, [1], plus=2, to=0, params=[{"to": 1}, {"to": 2j}, {"to": 3}])

    assert await ran.result() == 3 + 2j


async def test_an_other_cloudpickle_in_the_job_is_left_alone(place: Place) -> None:
    """Another version cannot always read what this one has written. Its files are not even
    opened.
    """
    (place.work / "cloudpickle.py").write_text("raise ImportError('too old')")

    assert await place.run(lambda: 5).result() == 5


def identity() -> tuple[str, int, int, int, str]:
    import iris

    here = iris.context()
    return here.job, here.task, here.num_tasks, here.port("http"), here.checkpoint_dir.name


async def test_a_function_reads_its_context_where_iris_is_not_installed(place: Place) -> None:
    """A function of a notebook saves its state and meets its siblings on every host, also in an
    image without Iris.
    """
    ran = place.run(identity)

    assert await ran.result() == (JOB, 3, 4, 8080, "checkpoint"), ran.err


def uses(name: str) -> object:
    import iris

    return getattr(iris, name) if name != "client" else iris.context().client


@pytest.mark.parametrize("name", ["client", "ActorServer"])
async def test_what_needs_all_of_iris_says_so_where_it_is_not_installed(
    place: Place, name: str
) -> None:
    """`No module named 'iris.client.blocking.client'` says nothing of what to do."""
    ran = place.run(uses, name)

    assert ran.code == 1
    assert (
        "needs all of Iris: add the wheel of iris-temporal to the job's project, packages or image"
        in ran.err
    )


async def test_an_iris_that_the_job_has_is_used(place: Place) -> None:
    """A project may have another version of it, whose modules belong together."""
    (place.work / "iris.py").write_text("ActorServer = 'of the job'")

    assert await place.run(uses, "ActorServer").result() == "of the job"


async def test_a_module_that_the_job_does_not_get_travels_with_its_function(place: Place) -> None:
    """Here a module of the tests, which calls another function of its own."""
    assert await place.run(halves.half_of, 10).result() == 5


async def test_a_function_of_the_workspace_is_imported_there(place: Place, tmp_path: Path) -> None:
    """The job has the workspace's own file, and everything in it that the function uses."""
    here = tmp_path / "here"
    here.mkdir()
    module = module_in(here, "trainer", "WORD = 'submitted'\ndef word():\n    return WORD\n")
    (place.work / "trainer.py").write_text("WORD = 'in the job'\ndef word():\n    return WORD\n")

    assert await place.run(module.word, workspace=here).result() == "in the job"


async def test_a_module_beside_a_script_travels_with_its_function(
    place: Place, tmp_path: Path
) -> None:
    """`python scripts/run.py` imports its neighbours; the job starts in the workspace's directory
    and would not find them.
    """
    scripts = tmp_path / "here" / "scripts"
    scripts.mkdir(parents=True)
    module = module_in(scripts, "neighbour", "def word():\n    return 'by value'\n")

    assert await place.run(module.word, workspace=tmp_path / "here").result() == "by value"


async def test_a_function_of_a_module_that_git_ignores_is_passed_as_a_whole(
    place: Place, tmp_path: Path
) -> None:
    """It lies in the workspace, and is not sent with it: the job found no such module."""
    here = tmp_path / "here"
    here.mkdir()
    (here / ".gitignore").write_text("generated_*.py\n")
    module = module_in(here, "generated_words", "def word():\n    return 'by value'\n")

    assert await place.run(module.word, workspace=here).result() == "by value"


async def test_a_program_that_ends_well_by_itself_has_returned_nothing(place: Place) -> None:
    """`sys.exit(0)` is no failure."""
    ran = place.run(partial(sys.exit, 0))

    assert (ran.code, await ran.result()) == (0, None)


async def test_an_exception_comes_back_with_its_type_and_the_jobs_traceback(place: Place) -> None:
    """The log has the same traceback, without the frames of the script that called the function."""

    def fails() -> None:
        raise KeyError("lr")

    ran = place.run(fails)
    raised = await ran.result()

    assert ran.code == 1
    assert ran.err.startswith("Traceback")
    assert "in fails" in ran.err
    assert bundles.SCRIPT not in ran.err
    assert isinstance(raised, Raised)
    assert repr(raised.error) == "KeyError('lr')"
    assert "in fails" in str(RemoteTraceback(raised.traceback))


async def test_an_exception_that_cannot_be_restored_comes_back_as_its_text(place: Place) -> None:
    """Many libraries have exceptions whose constructors need other arguments."""

    def fails() -> None:
        raise Odd(1, 2)

    raised = await place.run(fails).result()

    assert (raised.error, raised.text) == (None, "Odd: 1 and 2")


async def test_a_program_that_exits_keeps_its_exit_code_and_leaves_no_result(place: Place) -> None:
    """`sys.exit(7)` in a function is the user's choice of an exit code."""
    ran = place.run(partial(sys.exit, 7))

    assert ran.code == 7
    with pytest.raises(NoResult, match=r"task 0 of ada/call left no result in attempt 1"):
        await ran.result()


async def test_a_result_that_cannot_be_pickled_fails_the_task_and_says_what_to_return(
    place: Place,
) -> None:
    """It would be a success without a result otherwise."""
    ran = place.run(threading.Lock)
    raised = await ran.result()

    assert ran.code == 1
    assert "the result of _thread:allocate_lock, a lock, cannot be pickled" in ran.err
    assert "return plain data, or write files to $IRIS_OUTPUT_DIR" in ran.err
    assert isinstance(raised.error, TypeError)


@pytest.mark.long
async def test_a_result_of_more_than_two_gibibytes_comes_back() -> None:
    """More than a signed 32-bit length can say. Nothing of it stays on the disk, as it would in
    pytest's directory.
    """
    with tempfile.TemporaryDirectory() as directory:
        ran = Place(Path(directory)).run(bytes, 2**31 + 1)

        assert ran.code == 0, ran.err
        assert len(await ran.result()) == 2**31 + 1


async def test_another_version_of_python_is_refused_with_both_versions(place: Place) -> None:
    """Pickled functions are bytecode, which another version reads wrongly or not at all."""

    def made_elsewhere(call: Path) -> None:
        name, _ = json.loads((call / "call.json").read_text())
        (call / "call.json").write_text(json.dumps([name, [3, 1]]))

    ran = place.run(int, 1, changed=made_elsewhere)

    assert ran.code == 1
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert (
        f"function builtins:int was pickled by Python 3.1, and this job runs Python {here}"
        in ran.err
    )
    assert (
        f"give the job a project or an image with it, or submit from Python {here}"
        in (await ran.result()).text
    )


async def test_a_module_that_the_job_lacks_is_named_with_what_to_do(place: Place) -> None:
    """A package that is installed here only: the interpreter of the job has no site-packages."""
    ran = place.run(yaml.safe_load, "1")

    assert ran.code == 1
    assert (
        "yaml:safe_load needs the module 'yaml', which the job's environment does not have; add"
        " it to" in ran.err
    )


async def test_a_result_of_a_class_that_is_missing_here_is_refused_and_not_the_job(
    place: Place, tmp_path: Path
) -> None:
    """The caller learns what cannot be restored."""
    here = tmp_path / "here"
    here.mkdir()
    module = module_in(
        here, "points", "class Point:\n    pass\n\n\ndef origin():\n    return Point()\n"
    )
    (place.work / "points.py").write_text((here / "points.py").read_text())
    ran = place.run(module.origin, workspace=here)
    del sys.modules["points"]

    assert ran.code == 0
    with pytest.raises(
        NoResult,
        match=(
            r"the result of task 0 of ada/call, a Point, cannot be restored here: No module named"
        ),
    ):
        await ran.result()


def with_global_module(text: str) -> object:
    return pytest.importorskip(text)


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (yaml.safe_load, ["1"]),
        (with_global_module, ["yaml"]),
        (isinstance, [1, yaml.YAMLError]),
        (len, [[len, yaml.Loader]]),
    ],
    ids=["a function", "a module that it uses", "an argument", "a class in an argument"],
)
def test_a_module_that_the_job_may_lack_is_warned_about_before_the_submission(
    function: Any, args: list[Any]
) -> None:
    """A machine is paid for until the function says so. The machine may have the module all the
    same, so nothing is refused.
    """
    with pytest.warns(
        UserWarning,
        match=r"uses (pytest|yaml), .*fails on hosts whose Python lacks that; submit it from its",
    ):
        pack_call(function, args, {}, bare=True).close()


@pytest.mark.filterwarnings("error")
def test_modules_that_the_job_has_are_not_warned_about(tmp_path: Path) -> None:
    """Those of the standard library, of its workspace, what comes with the call, and any where
    something is installed.
    """
    here = tmp_path / "here"
    here.mkdir()
    module = module_in(
        here,
        "sender",
        "import json\nimport iris\n\ndef text(x):\n    return json.dumps([x, iris.context])\n",
    )
    pack_call(module.text, [Path, threading.Thread], {}, here, bare=True).close()
    pack_call(identity, [iris.context, iris.IrisError], {}, bare=True).close()
    pack_call(yaml.safe_load, ["1"], {}).close()


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ([threading.Lock()], "cannot be pickled"),
        ([bytes(101 * 1024 * 1024)], "has 101 MiB of arguments; the limit is 99 MiB"),
    ],
    ids=["a-lock", "too-large"],
)
def test_arguments_that_cannot_travel_are_refused_before_the_submission(
    args: list[Any], problem: str
) -> None:
    """No machine is paid for a call that cannot be made."""
    with pytest.raises(InvalidValue, match=f"function: 'builtins:print' {problem}"):
        pack_call(print, args, {})


async def doubled_later(number: int) -> int:
    """A function that only an event loop can run."""
    await asyncio.sleep(0)
    if number < 0:
        raise ValueError("negative")
    return 2 * number


async def test_a_coroutine_function_runs_on_an_event_loop(tmp_path: Path) -> None:
    """Programs that wait for many services at once are written so. Its result, or exception, comes
    back.
    """
    assert await Place(tmp_path).run(doubled_later, 21).result() == 42
    (tmp_path / "again").mkdir()
    raised = await Place(tmp_path / "again").run(doubled_later, -1).result()
    assert isinstance(raised, Raised)
    assert "ValueError: negative" in raised.traceback


def test_the_same_call_is_stored_once() -> None:
    """A bundle has the name of its content: a thousand equal calls are one upload."""

    def packed() -> str:
        with pack_call(halves.half_of, [10], {}) as call:
            return call.bundle.sha256

    assert packed() == packed()


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (halves.half_of, "tests.client.halves:half_of"),
        (partial(halves.half_of, 3), "tests.client.halves:half_of"),
        (threading.Lock, "_thread:allocate_lock"),
    ],
)
def test_lists_show_a_function_by_its_module_and_name(
    function: Callable[..., Any], name: str
) -> None:
    """It stands where other jobs have their command."""
    assert function_name(function) == name


@pytest.mark.parametrize(
    ("work", "problem"),
    [
        (
            "python train.py",
            (
                "work: 'python train.py' is one text, .*; pass each word: 'python', 'train.py'; or a"
                " shell: 'sh', '-c', "
            ),
        ),
        (b"true", "is neither a function nor a program"),
        (("true", 3), "command: '3' is a int, not a text"),
        ((), "command: '' is empty"),
    ],
)
async def test_a_program_that_no_host_could_start_is_refused_before_the_submission(
    tmp_path: Path, work: Any, problem: str
) -> None:
    """A host, or the slice that is bought for the job, costs more than a look at the words."""
    record = ClusterRecord(name="local", address="127.0.0.1:1", store=tmp_path.as_uri())
    with pytest.raises(Rejected, match=problem):
        await make_job(record, work, (), {}, False)
