"""The options of a job in Python: they make the job that the command line makes."""

from datetime import timedelta
from typing import Any

import click
import pytest
from click.testing import CliRunner

from iris.cli.submit.job_from_options import plan_job
from iris.cli.submit.options import spec_options
from iris.client.build.options import Resources, job_spec
from iris.client.build.tasks import TaskOptions, tasks_of
from iris.model.errors import InvalidJob, InvalidValue
from iris.model.host.accelerators import parse_gpu
from iris.model.host.resources import parse_device
from iris.model.job.environments import EnvironmentSpec
from iris.model.job.spec import JobSpec


def by_command_line(*arguments: str) -> JobSpec:
    """The job of `iris submit ARGUMENTS`, without its files."""
    made: list[JobSpec] = []

    @click.command()
    @spec_options
    @click.argument("command", nargs=-1)
    def submit(**options: Any) -> None:
        made.append(plan_job(options, shares_files=False).spec)

    ran = CliRunner().invoke(
        submit,
        ["-n", "x", "--no-workspace", *arguments, "--", "python", "train.py"],
        catch_exceptions=False,
    )
    assert made, ran.output
    return made[0]


@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        ({}, ()),
        (
            {"resources": Resources(cpu=2, memory="8g", disk="1t")},
            ("--cpu", "2", "--memory", "8g", "--disk", "1t"),
        ),
        (
            {"resources": Resources(gpu="H100x8"), "replicas": 2},
            ("--gpu", "H100x8", "--replicas", "2"),
        ),
        ({"resources": Resources(tpu="v5litepod-16")}, ("--tpu", "v5litepod-16")),
        (
            {"resources": Resources(tpu="v5litepod-16", slices=2)},
            ("--tpu", "v5litepod-16", "--slices", "2"),
        ),
        (
            {"resources": Resources(tpu="v5litepod-8"), "replicas": 3},
            ("--tpu", "v5litepod-8", "--replicas", "3"),
        ),
        ({"replicas": 4, "gang_by": "zone"}, ("--replicas", "4", "--gang-by", "zone")),
        (
            {"replicas": 4, "gang_by": "zone", "tasks_per_host": 2},
            ("--replicas", "4", "--gang-by", "zone", "--tasks-per-host", "2"),
        ),
        ({"env": {"LR": "0.1"}, "secret": ["KEY"]}, ("--env", "LR=0.1", "--secret", "KEY")),
        ({"secret": {"KEY": "file:key.txt"}}, ("--secret", "KEY=file:key.txt")),
        ({"environment": EnvironmentSpec(pip=("numpy",))}, ("--pip", "numpy")),
        (
            {"image": "python:3.11", "workdir": "/data"},
            ("--image", "python:3.11", "--workdir", "/data"),
        ),
        ({"priority": "batch", "ports": ["metrics"]}, ("--priority", "batch", "--port", "metrics")),
        (
            {"timeout": "12h", "scheduling_timeout": 600},
            ("--timeout", "12h", "--scheduling-timeout", "10m"),
        ),
        (
            {"retries": 3, "max_task_failures": 1, "replicas": 2},
            ("--max-retries", "3", "--max-task-failures", "1", "--replicas", "2"),
        ),
        ({"constraints": ["zone = a"]}, ("--constraint", "zone = a")),
        (
            {"after": ["a", "bob/b#2"], "after_fail": ["c"]},
            ("--after", "a,bob/b#2", "--after-fail", "c"),
        ),
        (
            {"tags": {"sweep": "lr", "base": ""}, "note": "a b"},
            ("--tag", "sweep=lr", "--tag", "base", "--note", "a b"),
        ),
        ({"notify": ["https://chat.example/hook"]}, ("--notify", "https://chat.example/hook")),
        ({"from_checkpoint": "bob/train#2:1"}, ("--from-checkpoint", "bob/train#2:1")),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else "",
)
def test_the_same_options_make_the_same_job_in_python_and_in_a_shell(
    options: Any, arguments: tuple[str, ...]
) -> None:
    """What is known of one helps with the other."""
    by_shell = by_command_line(*arguments)
    assert job_spec(by_shell.user, ["python", "train.py"], name="x", **options) == by_shell


def test_durations_may_be_timedeltas() -> None:
    """As elsewhere in Python."""
    spec = job_spec("ada", ["true"], timeout=timedelta(hours=1), grace="5s")
    assert (spec.timeout, spec.grace) == (timedelta(hours=1), timedelta(seconds=5))


@pytest.mark.parametrize("grace", [0, "0s", timedelta(0)])
def test_no_grace_is_a_grace(grace: float | str | timedelta) -> None:
    """A program that is to be killed at once would otherwise run on for the default time."""
    assert job_spec("ada", ["true"], grace=grace).grace == timedelta(0)


def test_a_job_without_a_name_gets_one_that_says_what_it_runs() -> None:
    """A list of fifty jobs stays readable; two jobs never have the same name."""
    first, second = (job_spec("ada", ["tools.train:main"]).name for _ in range(2))

    assert first != second
    assert first.startswith("main-")
    assert job_spec("ada", ["/usr/bin/train.py"]).name.startswith("train-")
    assert job_spec("ada", ["…"]).name.startswith("job-")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"retry": 3}, "option: 'retry' is not an option of a job; did you mean retries?"),
        ({"replicas": 0}, "replicas: '0' is out of range"),
        ({"resources": Resources(cpu="many")}, "cpu: 'many'"),
        (
            {"resources": Resources(tpu="v5litepod-16", gpu="H100")},
            "tpu: 'v5litepod-16' does not go with gpu",
        ),
        (
            {"resources": Resources(slices=2)},
            "slices: '2' needs tpu with the type of the slices; give tpu, too",
        ),
        (
            {"resources": Resources(tpu="v5litepod-16"), "replicas": 3},
            "replicas: '3' does not give one task to each host of a slice of 4 hosts",
        ),
        (
            {"resources": Resources(tpu="v5litepod-16"), "gang_by": "zone"},
            "gang_by: 'zone' does not go with tpu",
        ),
        (
            {"tasks_per_host": 2},
            "tasks_per_host: '2' needs gang_by with the attribute that the gang's hosts share; give gang_by, too",
        ),
        (
            {"resources": {"cpu": 1}},
            "resources: .* is not Resources; write resources=iris.Resources",
        ),
        (
            {"resources": Resources(memory=512)},
            "memory: '512' has no unit, so it means bytes; add the unit, such as \"512g\"",
        ),
        ({"ports": "http"}, "ports: 'http' is one text, not a list; write ports=\\['http'\\]"),
        ({"after": "a"}, "after: 'a' is one text, not a list; write after=\\['a'\\]"),
        ({"after_any": 3}, "after_any: '3' is not a list of jobs; write after_any=\\[job\\]"),
        ({"after": ["a:3"]}, "after: 'a:3' is a task; a job waits for whole jobs"),
        ({"env": ["A=1"]}, "env: .* is not a mapping of names to values; write env="),
        ({"tags": ["a=1"]}, "tags: .* is not a mapping of names to values; write tags="),
        ({"tags": {"a": "b c"}}, "^tags: 'a=b c' has no valid value"),
        ({"tag": "a"}, "option: 'tag' is not an option of a job; did you mean tags?"),
        ({"note": "a\nb"}, "^note: .* contains control characters; write one line of text"),
        (
            {"coscheduling": "zone"},
            "option: 'coscheduling' is not an option of a job; did you mean gang_by?",
        ),
        ({"env": {"A": 1}}, "env.A: '1' is not valid; input should be a valid string"),
        ({"image": 3}, "image: '3' is not valid; input should be a valid string"),
        ({"retries": -1}, "^retries: '-1' is negative; give 0 or more"),
        ({"gang_by": "a b"}, "^gang_by: 'a b' is not a valid attribute key"),
        ({"resources": Resources(tpu=16)}, "tpu: '16' is not a TPU variant; use one of"),  # type: ignore[arg-type]
        (
            {"resources": Resources(tpu="v5litepod-16", slices=-1)},
            "slices: '-1' is not a valid number of slices; write 1 or more",
        ),
        (
            {"environment": {"pip": "numpy"}},
            "pip: 'numpy' is one text, not a list; write pip=\\['numpy'\\]",
        ),
        (
            {"from_checkpoint": "train:last"},
            "from_checkpoint: 'train:last' does not name a job; write NAME or USER/NAME",
        ),
        (
            {"x": 3},
            "option: 'x' is not an option of a job; .* arguments of a function go into kwargs",
        ),
        (
            {"priority": "high"},
            "priority: 'high' is not a priority band; write production, interactive, batch",
        ),
        ({"timeout": "soon"}, "timeout: 'soon' is not a duration"),
        ({"name": "a b"}, "name: 'a b' is not a valid name"),
    ],
)
def test_a_wrong_option_is_refused_with_its_name_value_and_remedy(
    options: Any, message: str
) -> None:
    """Before anything is uploaded."""
    with pytest.raises((InvalidValue, InvalidJob), match=message):
        job_spec("ada", ["true"], **options)


@pytest.mark.parametrize(("gpu", "shown"), [("H100:8", "H100x8"), ("8", "8")])
def test_an_error_shows_gpus_in_the_form_of_the_option(gpu: str, shown: str) -> None:
    """A user does not know the form that Iris has of a device."""
    options = TaskOptions(gpu=parse_gpu(gpu), device=parse_device("tpu"))
    with pytest.raises(InvalidValue, match=f"gpu: '{shown}' does not go with device"):
        tasks_of(options)
