"""Arrays in the options of the command line and of Python."""

from pathlib import Path
from typing import Any

import click
import pytest

from iris.cli.submit.job_from_options import plan_job
from iris.cli.submit.options import parse_words
from iris.client.build.arrays import parse_array
from iris.client.build.options import Resources, job_spec
from iris.client.build.warnings import job_warnings
from iris.model.errors import Rejected
from iris.model.job.arrays import MAX_TASKS, Array
from iris.model.job.spec import JobSpec

CSV = "lr,model\n0.1,small\n0.2,big\n0.3,huge\n"


def by_command_line(*words: str) -> JobSpec:
    return plan_job(parse_words([*words, "--", "true", "{lrs}"]), shares_files=False).spec


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table in the current directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "params.csv").write_text(CSV)
    return tmp_path / "params.csv"


@pytest.mark.parametrize(
    ("text", "array"),
    [
        ("0-99%10", Array(indices="0-99", size=100, limit=10)),
        ("1,3,7", Array(indices="1,3,7", size=3)),
        ("5", Array(indices="5", size=1)),
        ("params.csv", Array(indices="0-2", size=3, columns=("lr", "model"))),
        ("params.csv%2", Array(indices="0-2", size=3, limit=2, columns=("lr", "model"))),
    ],
)
def test_a_job_has_a_task_for_each_index_or_row(table: Path, text: str, array: Array) -> None:
    """The same text works in a shell, a job file and Python."""
    spec = by_command_line("--array", text)

    assert spec.array == array
    assert spec.replicas == array.size


def test_a_file_may_have_a_percent_sign_at_its_end(table: Path) -> None:
    """A file of this name exists, so the text names it."""
    table.rename(table.with_name("p%2.csv")).write_text(CSV)

    assert parse_array("p%2.csv").array.limit is None


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--array", "10-1"), "write 1-10"),
        (("--array", "0-9%0"), "1 or more after %"),
        (("--array", "missing.csv"), "No such file"),
        (("--array", "."), "Is a directory"),
        (("--array", "a\0b"), "cannot be read"),
        (("--array", "0-9", "--replicas", "10"), "--array and --replicas exclude each other"),
        (("--array", "0-9", "--gang-by", "rack"), "--array and --gang-by exclude each other"),
        (
            ("--array", "0-9", "--tasks-per-host", "2"),
            "--array and --tasks-per-host exclude each other",
        ),
        (
            ("--array", "0-9", "--tpu", "v5litepod-4", "--slices", "2"),
            "--array and --slices exclude each other",
        ),
        (("--array", "0-9", "--tpu", "v5litepod-16"), "a slice of this type has 4"),
        (("--array", f"0-{MAX_TASKS}"), f"at most {MAX_TASKS:,}"),
    ],
)
def test_a_wrong_array_is_refused_before_anything_is_sent(
    words: tuple[str, ...], problem: str
) -> None:
    """The message has the remedy."""
    with pytest.raises((click.UsageError, Rejected)) as error:
        by_command_line(*words)

    assert problem in str(error.value)


def test_a_task_of_an_array_may_have_a_slice_of_one_host() -> None:
    """A sweep over small slices is the usual one."""
    assert by_command_line("--array", "0-9", "--tpu", "v5litepod-4").replicas == 10


def test_a_name_that_resembles_a_column_is_a_warning(table: Path) -> None:
    """The program would get the braces."""
    (warning,) = job_warnings(by_command_line("--array", "params.csv"))

    assert "did you mean {lr}?" in warning


@pytest.mark.parametrize(
    ("options", "array"),
    [
        ({"array": "0-99%10"}, Array(indices="0-99", size=100, limit=10)),
        ({"array": range(0, 100, 10)}, Array(indices="0-90:10", size=10)),
        ({"array": [3, 1], "max_running": 1}, Array(indices="1,3", size=2, limit=1)),
        ({"params": [{"lr": 0.1}, {"lr": 0.2}]}, Array(indices="0-1", size=2, columns=("lr",))),
    ],
)
def test_a_python_program_gives_indices_or_rows(options: Any, array: Array) -> None:
    """`range` and lists are what one has in Python."""
    spec = job_spec("ada", ["true"], **options)

    assert (spec.array, spec.replicas) == (array, array.size)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"array": "0-9", "params": [{"a": 1}]}, "does not go with params"),
        ({"array": "0-9%2", "max_running": 3}, "give the limit once"),
        ({"max_running": 3}, "is only for arrays"),
        ({"array": "0-9", "max_running": 0}, "limit on tasks at once"),
        ({"array": []}, "lacks an index"),
        ({"params": []}, "has no rows"),
        ({"params": [{"a": 1}, 2]}, "row 1"),
        ({"params": [{"a": 1}] * (MAX_TASKS + 1)}, f"at most {MAX_TASKS:,}"),
        ({"array": "0-9", "replicas": 3}, "does not go with replicas"),
        ({"array": "0-9", "gang_by": "rack"}, "does not go with gang_by"),
        (
            {"array": "0-9", "resources": Resources(tpu="v5litepod-16")},
            "a slice of this type has 4",
        ),
    ],
)
def test_a_wrong_array_of_a_program_is_refused_with_its_remedy(options: Any, problem: str) -> None:
    """As in a shell."""
    with pytest.raises(Rejected) as error:
        job_spec("ada", ["true"], **options)

    assert problem in str(error.value)
