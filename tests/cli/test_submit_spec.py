"""From the words of `iris submit` to the job that is asked for."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import click
import pytest

from iris.cli.spec import make_spec
from iris.cli.submit import submit
from iris.constraints import TPU_NAME
from iris.errors import Rejected
from iris.jobs import Band, Coscheduling, JobSpec
from iris.resources import Device, DeviceKind
from iris.units import GIB


@pytest.fixture(autouse=True)
def _ada(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IRIS_USER", "ada")


def job(*arguments: str, command: tuple[str, ...] = ("true",), shares_files: bool = False) -> JobSpec:
    """The job of `iris submit ARGUMENTS -- COMMAND`."""
    options = submit.make_context("submit", [*arguments, "--", *command]).params
    return make_spec(options, shares_files=shares_files)


def test_every_option_arrives_in_the_job() -> None:
    """Nothing that a user says is dropped."""
    spec = job(
        *("-n", "train", "--cpu", "2.5", "--memory", "3g", "--disk", "4g", "--device", "gpu:H100:8", "--replicas", "3"),
        *("--env", "A=1", "--env", "A=2", "-e", "B=x=y", "--workdir", "/data", "--priority", "batch"),
        *("--scheduling-timeout", "1m", "--timeout", "2h"),
        *("--max-retries", "4", "--max-retries-preemption", "5", "--max-task-failures", "2"),
        command=("python", "train.py", "--lr", "0.1"),
    )
    assert (spec.id, spec.command) == ("ada/train", ("python", "train.py", "--lr", "0.1"))
    assert (spec.resources.cpu_millis, spec.resources.memory_bytes, spec.resources.disk_bytes) == (2500, 3 * GIB, 4 * GIB)
    assert spec.resources.device == Device(kind=DeviceKind.GPU, variant="H100", count=8)
    assert (spec.replicas, spec.coscheduling, spec.constraints) == (3, None, ())
    assert (spec.workdir, spec.env, spec.band) == ("/data", {"A": "2", "B": "x=y"}, Band.BATCH)
    assert (spec.scheduling_timeout, spec.timeout) == (timedelta(minutes=1), timedelta(hours=2))
    assert (spec.max_retries_failure, spec.max_retries_preemption, spec.max_task_failures) == (4, 5, 2)


def test_a_job_of_which_nothing_is_said_is_one_interactive_task_that_is_not_tried_again() -> None:
    """The least that a command needs; a lost machine is forgiven a hundred times."""
    spec = job()
    assert (spec.resources.cpu_millis, spec.resources.memory_bytes, spec.resources.device) == (1000, GIB, None)
    assert (spec.replicas, spec.coscheduling, spec.constraints, spec.band) == (1, None, (), Band.INTERACTIVE)
    assert (spec.max_retries_failure, spec.max_retries_preemption, spec.max_task_failures) == (0, 100, 0)
    assert (spec.scheduling_timeout, spec.timeout) == (None, None)


def by_slice(groups: int) -> Coscheduling:
    return Coscheduling(group_by=TPU_NAME, groups=groups)


#: Options, the device of each task, how many tasks, and how they go together.
DERIVED: list[tuple[str, str, int, Coscheduling | None]] = [
    # Slices of several hosts: a task on each, all at once, with all chips of the host.
    ("--tpu v5litepod-16", "tpu:v5litepod-16:4", 4, by_slice(1)),
    ("--tpu V5E-16", "tpu:v5litepod-16:4", 4, by_slice(1)),
    ("--tpu v5litepod-256", "tpu:v5litepod-256:4", 64, by_slice(1)),
    ("--tpu v4-16", "tpu:v4-16:4", 2, by_slice(1)),
    ("--tpu v5litepod-16 --slices 2", "tpu:v5litepod-16:4", 8, by_slice(2)),
    ("--tpu v5litepod-16 --replicas 4", "tpu:v5litepod-16:4", 4, by_slice(1)),
    ("--tpu v5litepod-16 --replicas 8", "tpu:v5litepod-16:4", 8, by_slice(2)),
    ("--tpu v5litepod-16 --slices 2 --replicas 8", "tpu:v5litepod-16:4", 8, by_slice(2)),
    ("--tpu v5litepod-16,v6e-16", "tpu:v5litepod-16,v6e-16:4", 4, by_slice(1)),
    # Slices of one host: tasks that go their own ways, unless several slices are wanted at once.
    ("--tpu v5litepod-8", "tpu:v5litepod-8:8", 1, None),
    ("--tpu v5litepod-8 --replicas 3", "tpu:v5litepod-8:8", 3, None),
    ("--tpu v5litepod-8 --slices 3", "tpu:v5litepod-8:8", 3, by_slice(3)),
    ("--tpu v6e-1", "tpu:v6e-1:1", 1, None),
    # GPUs: devices of each task; what goes together is said.
    ("--gpu H100x8", "gpu:H100:8", 1, None),
    ("--gpu 2 --replicas 3", "gpu:auto:2", 3, None),
    ("--gpu A100,H100x8", "gpu:A100,H100:8", 1, None),
    ("--gpu H100x8 --replicas 4 --gang-by zone", "gpu:H100:8", 4, Coscheduling(group_by="zone")),
    ("--device gpu:L4", "gpu:L4:1", 1, None),
    # None at all.
    ("--replicas 20", "cpu", 20, None),
    ("--replicas 4 --gang-by rack", "cpu", 4, Coscheduling(group_by="rack")),
    ("--device cpu", "cpu", 1, None),
]


@pytest.mark.parametrize(("options", "device", "replicas", "together"), DERIVED, ids=lambda value: str(value))
def test_the_accelerator_says_how_many_tasks_there_are_and_which_go_together(
    options: str, device: str, replicas: int, together: Coscheduling | None
) -> None:
    """Nobody counts hosts and chips by hand."""
    spec = job(*options.split())
    assert (str(spec.resources.device or "cpu"), spec.replicas, spec.coscheduling) == (device, replicas, together)


def test_constraints_preferences_and_the_short_forms_all_arrive() -> None:
    """Required ones and preferred ones, in whatever way they were said."""
    spec = job(
        *("--constraint", "driver >= 550", "--constraint", "zone in (a, b)", "--constraint", "nvlink exists"),
        *("--prefer", "rack = 4", "--region", "us", "--region", "eu", "--zone", "eu-a", "--no-preemptible"),
    )
    found = {f"{'?' if each.preferred else ''}{each}" for each in spec.constraints}
    assert found == {
        "driver >= 550",
        "zone in (a, b)",
        "nvlink exists",
        "?rack = 4",
        "region in (us, eu)",
        "zone = eu-a",
        "preemptible = false",
    }


@pytest.mark.parametrize(
    ("options", "shown"),
    [("--preemptible", "preemptible = true"), ("--region us", "region = us"), ("--constraint !spot", "spot absent")],
)
def test_a_short_form_is_the_constraint_that_it_stands_for(options: str, shown: str) -> None:
    """So that a refusal can name it in the words of `--constraint`."""
    (constraint,) = job(*options.split()).constraints
    assert (str(constraint), constraint.preferred) == (shown, False)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--tpu v5litepod-16 --gpu 8", "--tpu and --gpu exclude each other"),
        ("--tpu v5litepod-16 --device gpu:H100", "--tpu and --device exclude each other"),
        ("--gpu 8 --device gpu:H100", "--gpu and --device exclude each other"),
        ("--slices 2", "say with --tpu of what kind"),
        ("--slices 2 --gpu 8", "say with --tpu of what kind"),
        ("--tpu v5litepod-16 --gang-by zone", "--gang-by does not go with --tpu"),
    ],
)
def test_options_that_contradict_each_other_are_wrong_usage(options: str, words: str) -> None:
    """One of them would have to be ignored, and nobody could know which."""
    with pytest.raises(click.UsageError, match=words):
        job(*options.split())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--replicas 3", "replicas: '3' is not a task for each host of a slice of 4; leave it out, and say --slices N"),
        ("--replicas 0", "replicas: '0' is out of range; ask for 1 to 1,000 tasks"),
        ("--replicas -4", "replicas: '-4' is out of range; ask for 1 to 1,000 tasks"),
        ("--slices 2 --replicas 4", "replicas: '4' is not a task for each host of 2 slices of 4; leave it out"),
        ("--slices 251", "replicas: '1004' is out of range; ask for 1 to 1,000 tasks"),
    ],
)
def test_a_number_of_tasks_that_leaves_hosts_of_a_slice_idle_is_refused(options: str, said: str) -> None:
    """With field, value and remedy: half a slice helps nobody."""
    with pytest.raises(Rejected) as refused:
        job("--tpu", "v5litepod-16", *options.split())
    assert str(refused.value).startswith(said)


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--name", "name: '' is not a name"),
        ("--zone", "zone: '' names no zone"),
        ("--region", "region: '' names no region"),
    ],
)
def test_an_empty_word_is_not_taken_for_nothing(option: str, said: str) -> None:
    """`--zone "$ZONE"` with a variable that is not set must not run the job just anywhere."""
    with pytest.raises(Rejected) as refused:
        job(option, "")
    assert said in str(refused.value)


def test_a_job_without_a_name_gets_one_of_its_own() -> None:
    """Two submissions of one command are two jobs."""
    first, second = job(), job()
    assert first.name != second.name


def test_a_job_starts_in_the_present_directory_only_where_the_host_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a fleet the submitter's directory means nothing."""
    monkeypatch.chdir(tmp_path)
    assert job(shares_files=True).workdir == str(tmp_path)
    assert job(shares_files=False).workdir is None
    assert job("--workdir", "/data", shares_files=True).workdir == "/data"


def test_all_that_is_wrong_with_a_job_is_said_at_once() -> None:
    """In sentences, without a word of the library that checks."""
    wrong: tuple[Any, ...] = ("-n", "a b", "--replicas", "0", "--env", "IRIS_X=1", "--max-retries", "-1")
    with pytest.raises(Rejected) as refused:
        job(*wrong)
    said = str(refused.value)
    for words in (
        "name: 'a b' is not a name",
        "replicas: '0' is out of range",
        "env: 'IRIS_X' is set by Iris itself",
        "max_retries_failure: '-1' is negative; give 0 or more",
    ):
        assert words in said
    assert "pydantic" not in said
    assert "validation error" not in said.lower()
