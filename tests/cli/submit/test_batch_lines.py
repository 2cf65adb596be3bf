"""From the lines of `iris submit --batch` to jobs, before any of them is submitted."""

from typing import Any

import click
import pytest

from iris.cli.main import run
from iris.cli.submit.batch_lines import BatchJob, jobs_of, line_ranges
from iris.model.units import GIB


@pytest.fixture(autouse=True)
def _ada(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IRIS_USER", "ada")


def jobs(*lines: str, batch_key: str = "", **given: Any) -> list[BatchJob]:
    """The jobs of a batch without a workspace. The keywords are options of the command itself."""
    return jobs_of(
        "\n".join(lines), {"no_workspace": True, **given}, batch_key=batch_key, shares_files=False
    )


def problems(*lines: str) -> list[str]:
    """What is wrong with the lines."""
    with pytest.raises(click.UsageError) as refused:
        jobs(*lines)
    return refused.value.message.splitlines()


def test_a_line_has_the_rest_of_a_submit_command_and_the_command_s_options_are_its_defaults() -> (
    None
):
    """A file of commands is turned into a batch by removing `iris submit`."""
    text = ["# a sweep", "", "-n one --cpu 2 -e A=1 -- python 't r.py' --lr 0.1", "  -- true\r"]
    first, second = jobs(*text, memory=8 * GIB, cpu=4000, env=(("B", "2"),))
    assert (first.line, first.spec.id, first.spec.command) == (
        3,
        "ada/one",
        ("python", "t r.py", "--lr", "0.1"),
    )
    assert (first.spec.resources.cpu_millis, first.spec.resources.memory_bytes) == (2000, 8 * GIB)
    assert first.spec.env == {"A": "1", "B": "2"}
    assert (second.line, second.spec.command, second.spec.resources.cpu_millis) == (
        4,
        ("true",),
        4000,
    )


def test_every_wrong_line_is_listed_with_its_number() -> None:
    """One error for each run would take as many runs as there are wrong lines."""
    found = problems(
        "-n a -- true",
        "-n a -- false",
        "--cpu x -- true",
        "ls 'a",
        "-n b",
        "true --lr 3",
        "iris submit -- true",
        "--local -- true",
    )
    assert found[0] == "nothing was submitted:"
    wanted = [
        "line 2: name: 'a' is the name of line 1; give each job its own",
        "line 3: Invalid value for '--cpu'",
        "line 4: the quotes are wrong: no closing quotation",
        "line 5: Missing argument 'COMMAND...'",
        "line 6: No such option '--lr'",
        "line 7: begins with 'iris'; write only the options and the command",
        "line 8: No such option '--local'",
    ]
    assert [line.startswith(want) for line, want in zip(found[1:], wanted, strict=True)] == [
        True
    ] * 7, found
    assert found[5].endswith("put -- before the command")


def test_a_long_list_of_wrong_lines_is_cut() -> None:
    """The wrong file would fill the terminal."""
    assert problems(*["ls 'a"] * 23)[-1] == "and 3 more"


def test_an_empty_batch_is_an_error() -> None:
    """A generator that failed writes nothing, and its pipeline should not succeed."""
    assert "the batch has no jobs" in problems("", "# nothing")[0]


def test_a_line_keeps_its_key_and_name_when_other_lines_change() -> None:
    """So that a batch whose wrong line was mended can be submitted again. Equal lines are jobs of
    their own.
    """
    before = jobs("-- a", "-- b", "-- b", "-n c -- c")
    after = jobs("-- b", "-- b", "-n c -- c", "-- new")
    assert [job.key for job in after[:3]] == [job.key for job in before[1:]]
    assert [job.spec.name for job in after[:3]] == [job.spec.name for job in before[1:]]
    assert len({job.key for job in before}) == len({job.spec.name for job in before}) == 4


def test_another_batch_key_gives_other_jobs_and_names() -> None:
    """For a batch that is meant to run again."""
    once, again = jobs("-- a", "-n b -- b"), jobs("-- a", "-n b -- b", batch_key="2")
    assert {job.key for job in once}.isdisjoint(job.key for job in again)
    assert (once[0].spec.name != again[0].spec.name, again[1].spec.name) == (True, "b")


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([7], "line 7"), ([1, 2, 3], "lines 1-3"), ([1, 3, 4, 9], "lines 1, 3-4, 9")],
)
def test_numbers_of_lines_are_ranges(numbers: list[int], text: str) -> None:
    """After a failure at line 4,000 nobody reads 3,999 numbers."""
    assert line_ranges(numbers) == text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--batch", "-", "--", "true"], "--batch and COMMAND exclude each other"),
        (["--batch", "-", "--local"], "--batch and --local exclude each other"),
        (["--batch", "-", "-n", "x"], "--batch and --name exclude each other"),
        (["--batch", "/nowhere/jobs.txt"], "No such file or directory"),
        (["--batch-key", "2", "--", "true"], "--batch-key needs --batch"),
    ],
)
def test_what_a_batch_excludes_is_a_usage_error(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An option that is silently ignored costs more than an error."""
    assert run(["submit", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_a_line_waits_for_an_earlier_line_and_not_for_a_later_one() -> None:
    """The lines are submitted in their order, so a later one has no run yet."""
    assert [str(each) for each in jobs("-n a -- true", "-n b --after a -- true")[1].spec.after] == [
        "ada/a to succeed"
    ]
    assert problems("-n b --after a -- true", "-n a -- true")[1:] == [
        "line 1: after 'ada/a': line 2 is submitted later; move it before line 1"
    ]
    assert jobs("-n b --after a#1,b -- true", "-n a -- true"), "earlier runs of both names"


def test_a_repeated_batch_is_recognised_whatever_runs_its_lines_were_bound_to() -> None:
    """Otherwise a job that waits would be started twice by a second submission."""
    line = "-n b --after a -- true"
    assert jobs(line)[0].key == jobs(line)[0].key != jobs("-n b --after c -- true")[0].key
