"""`iris exec` and `iris profile` before any cluster is reached, and what `--resources` promises to
programs.
"""

from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from iris.cli.job_names import job_and_task
from iris.cli.jobs.exec import exec_
from iris.cli.jobs.profile import profile
from iris.cli.jobs.status import status
from iris.cli.show.jobs import usage_listing
from iris.client.jobs.usage import InUse
from iris.model.errors import InvalidValue, IrisError
from tests.builders import at, some


@pytest.fixture(autouse=True)
def _nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IRIS_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("IRIS_USER", "ada")
    monkeypatch.delenv("IRIS_CLUSTER", raising=False)


def refusal(command: click.Command, *arguments: str) -> str:
    """What is said to a command line that cannot be meant; before any cluster is looked for."""
    result = CliRunner().invoke(command, arguments, obj={"cluster": None})
    assert result.exit_code != 0
    return (
        result.output
        if result.exception is None or isinstance(result.exception, SystemExit)
        else str(result.exception)
    )


@pytest.mark.parametrize(
    ("command", "arguments", "words"),
    [
        (exec_, [], "Missing argument 'JOB[:TASK]'"),
        (exec_, ["train"], "Missing argument 'COMMAND...'"),
        (exec_, ["train", "--"], "Missing argument 'COMMAND...'"),
        (exec_, ["-t", "train", "--", "sh"], "-t needs a terminal"),
        (exec_, ["train", "-it", "--", "sh"], "-t needs a terminal"),
        (exec_, ["train", "--", "echo", "x" * 70_000], "is too long with its arguments"),
        (exec_, ["train:x", "--", "sh"], "write NAME:NUMBER"),
        (exec_, ["--timeout", "soon", "train", "--", "sh"], "'soon' is not a duration"),
        (
            profile,
            ["train", "--dump", "--duration", "3s"],
            "--dump excludes --duration and --format",
        ),
        (profile, ["train", "--duration", "100ms"], "use at least 1s"),
        (profile, ["train", "--format", "pdf"], "'pdf' is not one of"),
        (profile, ["train", "--rate", "0"], "0 is not in the range"),
        (status, ["--resources"], "Missing argument 'JOB'"),
    ],
)
def test_wrong_usage_is_answered_with_what_would_be_right(
    command: click.Command, arguments: list[str], words: str
) -> None:
    """Before a connection is made, and in words."""
    assert words in refusal(command, *arguments)


def test_the_commands_own_options_are_the_commands() -> None:
    """What stands behind -- is not read by Iris; and no cluster runs here."""
    result = CliRunner().invoke(
        exec_, ["train", "-i", "--", "ls", "-t", "--timeout"], obj={"cluster": None}
    )
    assert isinstance(result.exception, IrisError)
    assert "iris cluster start" in str(result.exception)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("train", ("ada/train", None)),
        ("train:3", ("ada/train", 3)),
        ("bob/x:0", ("bob/x", 0)),
        ("bob/x/y:0", ("bob/x/y", 0)),
    ],
)
def test_a_target_is_a_job_or_one_of_its_tasks(text: str, meant: tuple[str, int | None]) -> None:
    """As with `iris logs`."""
    assert job_and_task(text) == meant


@pytest.mark.parametrize("text", ["train:", "train:-1", "train:1:2", "a//c"])
def test_what_is_no_target_is_refused(text: str) -> None:
    """A typing error must not look into another task."""
    with pytest.raises(InvalidValue):
        job_and_task(text)


def in_use(**known: Any) -> InUse:
    return InUse(task=3, host="h1", **known)


def test_resources_are_null_until_the_host_has_said_something() -> None:
    """Sizes in bytes, cores in percent of one, times in ISO 8601."""
    known = in_use(
        at=at(0),
        pid=7,
        cpu_percent=150.5,
        memory_bytes=5,
        peak_memory_bytes=6,
        processes=2,
        ports={"http": 80},
        gpu_percent=85.0,
        gpu_memory_bytes=9,
    )
    assert [usage_listing(some(cpu=2, memory=1)).json(each) for each in (known, in_use())] == [
        {
            "task": 3,
            "host": "h1",
            "at": "2026-01-01T12:00:00Z",
            "pid": 7,
            "cpu_percent": 150.5,
            "memory_bytes": 5,
            "peak_memory_bytes": 6,
            "processes": 2,
            "ports": {"http": 80},
            "gpu_percent": 85.0,
            "gpu_memory_bytes": 9,
        },
        {
            "task": 3,
            "host": "h1",
            "at": None,
            "pid": None,
            "cpu_percent": None,
            "memory_bytes": None,
            "peak_memory_bytes": None,
            "processes": None,
            "ports": {},
            "gpu_percent": None,
            "gpu_memory_bytes": None,
        },
    ]


def test_the_table_shows_what_is_used_beside_what_is_requested() -> None:
    """And a dash for what is not known."""
    known = in_use(
        pid=7,
        cpu_percent=150.5,
        memory_bytes=2**29,
        peak_memory_bytes=2**30,
        processes=2,
        ports={"http": 80},
    )
    lines = usage_listing(some(cpu=2, memory=4)).table([known, in_use()]).splitlines()
    assert lines[1].split() == [
        "3",
        "h1",
        "7",
        "1.50",
        "of",
        "2",
        "512",
        "MiB",
        "1",
        "GiB",
        "4",
        "GiB",
        "2",
        "http=80",
    ]
    assert lines[2].split() == ["3", "h1", "-", "-", "-", "-", "4", "GiB", "-", "-"]
    assert usage_listing(some()).table([]) == "no task is on a host now"
