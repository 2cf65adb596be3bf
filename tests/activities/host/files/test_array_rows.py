"""What a task of an array gets: its index, its row of the table, and its values in the command."""

import asyncio
from pathlib import Path

import pytest

from iris.activities.host.files.bundles import Bundles, row_of
from iris.activities.host.runtimes.base import JobFault
from iris.client.build.arrays import parse_array
from iris.client.workspace.upload import upload_table
from iris.messages.task import RunTask
from iris.model.job.arrays import Array
from iris.model.job.bundles import Bundle
from iris.model.states import TaskState
from iris.storage.object_store import Store
from tests.activities.host.attempt.test_attempt import Bench, a_run


async def an_array(bench: Bench, table: str) -> Array:
    """The array of a table in the store of the bench."""
    file = bench.dir / "params.csv"
    file.write_text(table)
    given = parse_array(str(file))
    assert given.table is not None
    return given.array.model_copy(update={"table": await upload_table(bench.store, given.table)})


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


async def test_a_program_finds_its_row_in_variables_and_in_its_command(bench: Bench) -> None:
    """With the values in the command, a program needs no change; in a script, variables need no
    quoting.
    """
    array = await an_array(bench, "lr,model name\n0.1,small\n0.2,the 'big' one\n")
    script = (
        'echo "$IRIS_ARRAY_INDEX/$IRIS_ARRAY_COUNT $IRIS_PARAM_LR $IRIS_PARAM_MODEL_NAME $*" >'
        ' "$OUT"'
    )
    outcome = await bench.outcome(
        *("sh", "-c", script, "x", "--lr={lr}", "{model name}", "{index}", '{"a": {lr}}', "{{lr}}"),
        index=1,
        num_tasks=2,
        array=array.only([1]),
        env={"OUT": str(bench.dir / "said")},
    )

    assert outcome.state is TaskState.SUCCEEDED, outcome.reason
    said = await bench.there_is("said")
    assert said == """1/2 0.2 the 'big' one --lr=0.2 the 'big' one 1 {"a": 0.2} {lr}\n"""


async def test_the_table_of_other_tasks_is_not_left_beside_the_program(bench: Bench) -> None:
    """A table may be large, and an attempt may run for weeks."""
    array = await an_array(bench, "lr\n0.1\n0.2\n")
    task = a_run("true", index=1, array=array)
    bundles = Bundles(bench.store, bench.dir / "cache", 10**9)

    assert await row_of(bundles, task, bench.dir / "array") == {"lr": "0.2"}
    assert not (bench.dir / "array").exists()


async def test_only_a_task_of_an_array_has_places_in_its_command(bench: Bench) -> None:
    """Every other program keeps its braces."""
    outcome = await bench.outcome(
        "sh", "-c", f"echo '{{index}}' $IRIS_ARRAY_INDEX > {bench.dir}/said"
    )

    assert outcome.state is TaskState.SUCCEEDED
    assert await bench.there_is("said") == "{index}\n"


async def test_a_task_whose_row_is_not_in_the_store_fails_with_the_reason(bench: Bench) -> None:
    """It would fail on every other host, too, so it is not retried on the account of the
    machines.
    """
    store = Store((bench.dir / "store").as_uri(), create=True)
    bundles = Bundles(store, bench.dir / "cache", 10**9)
    array = await an_array(bench, "lr\n0.1\n")
    lost = array.model_copy(update={"table": Bundle(sha256="0" * 64)})

    assert (await _refusal(bundles, a_run("true", index=3, array=array), bench)).startswith(
        "the stored parameter table of this job has no row for task 3"
    )
    assert "is not in the store" in await _refusal(bundles, a_run("true", array=lost), bench)


async def _refusal(bundles: Bundles, task: RunTask, bench: Bench) -> str:
    with pytest.raises(JobFault) as error:
        await asyncio.wait_for(row_of(bundles, task, bench.dir / "array"), 60)
    return str(error.value)
