"""Which interpreter runs a function on its host: the version that has pickled it, whatever the host
finds first.
"""

import json
import os
import sys
import tarfile
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from iris.client.functions.call import pack_call
from iris.client.functions.result import read_result
from iris.client.pool.crew import worker_files
from iris.client.pool.messages import PoolFile
from iris.client.workspace.extra_files import ExtraFile
from iris.client.workspace.pack import pack
from iris.client.workspace.upload import upload
from iris.model import store_paths
from iris.model.job.attempts import TaskOutcome
from iris.model.job.bundles import Bundle
from iris.model.states import TaskState
from tests.activities.host.attempt.test_attempt import Bench
from tests.pythons import VERSION, a_command, another_python

JOB, RUN = "ada/call", "0198c0de-aaaa-bbbb-cccc-0123456789ab"


class Host(Bench):
    """A host on which functions run, one attempt each."""

    async def ran(self, call: Bundle, path: str) -> TaskOutcome:
        """Runs a call where PATH has these directories first."""
        outputs = store_paths.attempt_outputs(JOB, RUN, 0, 1)
        env = {"PATH": f"{path}:/bin"}
        return await self.outcome(
            "f", key=f"{JOB}:0@1/{uuid4().hex}", job=JOB, call=call, outputs=outputs, env=env
        )

    async def result(self) -> Any:
        return await read_result(self.store, JOB, RUN, 0, 1)

    async def uploaded(self, function: Any, *args: Any, python: str | None = None) -> Bundle:
        with pack_call(function, args, {}, python=python) as packed:
            return await upload(self.store, packed)

    async def uploaded_by_python_3_1(self) -> Bundle:
        """A call that no Python here has pickled."""
        call = self.dir / "call"
        with pack_call(abs, (-1,), {}) as packed, tarfile.open(fileobj=packed.archive) as archive:
            archive.extractall(call, filter="data")
        (call / "call.json").write_text(json.dumps(["builtins:abs", [3, 1]]))
        files = [
            ExtraFile(path, str(path.relative_to(call)))
            for path in sorted(call.rglob("*"))
            if path.is_file()
        ]
        with pack(None, files) as packed:
            return await upload(self.store, packed)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def version() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


async def test_a_function_gets_the_version_of_python_that_has_pickled_it(
    host: Host, tmp_path: Path
) -> None:
    """The `python` of a laptop is seldom that of the notebook. A shim, which has the name and
    starts nothing, is passed over.
    """
    another_python(tmp_path / "bin")
    a_command(tmp_path / "bin", f"python{VERSION}", "echo command not found >&2; exit 127")
    (tmp_path / "later").mkdir()
    (tmp_path / "later" / f"python{VERSION}").symlink_to(sys.executable)
    outcome = await host.ran(await host.uploaded(version), f"{tmp_path}/bin:{tmp_path}/later")

    assert outcome.state is TaskState.SUCCEEDED, outcome.reason
    assert await host.result() == VERSION


async def test_a_function_runs_in_the_interpreter_that_its_call_names(
    host: Host, tmp_path: Path
) -> None:
    """On a cluster of this machine: it has the packages of the program that submits the
    function.
    """
    mine = a_command(tmp_path / "mine", "python", f'MINE=yes exec {sys.executable} "$@"')
    another_python(tmp_path / "bin")
    outcome = await host.ran(
        await host.uploaded(os.getenv, "MINE", python=str(mine)), f"{tmp_path}/bin"
    )

    assert outcome.state is TaskState.SUCCEEDED, outcome.reason
    assert await host.result() == "yes"


async def test_an_interpreter_that_the_host_does_not_have_is_passed_over(
    host: Host, tmp_path: Path
) -> None:
    """The host may be another machine, and a job with a user of its own may not reach the
    interpreter.
    """
    call = await host.uploaded(version, python=str(tmp_path / "missing" / "python"))
    outcome = await host.ran(call, str(Path(sys.executable).parent))

    assert outcome.state is TaskState.SUCCEEDED, outcome.reason


async def test_a_function_for_which_there_is_no_python_is_not_run_again(host: Host) -> None:
    """Each further attempt would end in the same way, and would be paid for."""
    outcome = await host.ran(await host.uploaded_by_python_3_1(), str(Path(sys.executable).parent))

    assert (outcome.state, outcome.final) == (TaskState.FAILED, True)
    assert outcome.exit_code == 1
    assert "function builtins:abs was pickled by Python 3.1" in outcome.reason


async def test_a_worker_of_a_pool_for_which_there_is_no_python_says_so_and_is_not_run_again(
    host: Host, tmp_path: Path
) -> None:
    """The pool is broken by it, and `PoolBroken` has the reason of the job: the exit code alone
    says nothing.
    """
    pool = PoolFile(queue="local/pool/ada/sweep-1", key="aa" * 32, python=(3, 1), idle_timeout=600)
    with pack(None, worker_files(pool, tmp_path)) as packed:
        outcome = await host.ran(await upload(host.store, packed), str(Path(sys.executable).parent))

    assert outcome.final
    assert "the pool's calls are pickled by Python 3.1" in outcome.reason


async def test_an_exception_of_a_function_is_no_reason_not_to_run_it_again(host: Host) -> None:
    """It may have met something that passes."""
    outcome = await host.ran(await host.uploaded(divmod, 1, 0), str(Path(sys.executable).parent))

    assert (outcome.state, outcome.final) == (TaskState.FAILED, False)
