"""Defines the options that describe a job: those of `iris submit`, job files and schedules."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from iris.cli.command import Command
from iris.cli.name_completion import Kind
from iris.cli.parameters import (
    CPU,
    DEVICE,
    DISK,
    DURATION,
    KEY_VALUE,
    LIMIT,
    MEMORY,
    TAG,
    TEXT,
    WEBHOOK,
    Parsed,
)
from iris.client.build.arrays import parse_array
from iris.client.connect.identity import current_user, in_a_job
from iris.client.workspace.extra_files import parse_extra
from iris.model.host.accelerators import parse_gpu, parse_tpu
from iris.model.host.constraints import check_key, parse_constraint
from iris.model.host.idle_gpus import parse_stop_idle
from iris.model.job.dependencies import Condition, Dependency, parse_dependencies
from iris.model.job.environments import SETUP_TIMEOUT
from iris.model.job.secrets import parse_secret
from iris.model.job.spec import DEFAULT_GRACE, Band
from iris.model.units import format_duration


def _after(condition: Condition) -> Parsed:
    """Returns the type of jobs to wait for."""

    def parse(text: str) -> tuple[Dependency, ...]:
        return parse_dependencies(text, condition, current_user(), in_job=in_a_job())

    return Parsed("job[,job]", parse, Kind.JOBS)


# The types of the options. The comment names the value that each makes of a text.
TPU = Parsed("variant[,variant]", parse_tpu)  # TpuRequest
GPU = Parsed("variant[xcount]", parse_gpu)  # Device
KEY = Parsed("key", lambda text: check_key(text, "gang-by"))  # the text itself
REQUIRED = Parsed("constraint", parse_constraint)  # Constraint
PREFERRED = Parsed("constraint", lambda text: parse_constraint(text, preferred=True))  # Constraint
FILE = Parsed("path[:dest]", parse_extra)  # ExtraFile
SECRET = Parsed("secret", parse_secret)  # the name of a variable, and the source of its value
STOP_IDLE = Parsed("duration[:percent]", parse_stop_idle)  # StopIdle
ARRAY = Parsed("indices|file", parse_array)  # GivenArray
AFTER = _after(Condition.OK)  # Dependency, ...
AFTER_ANY = _after(Condition.ANY)
AFTER_FAIL = _after(Condition.FAIL)

#: The key under which the `meta` of click's context contains the words of the command line.
WORDS = "iris.cli.words"

Function = TypeVar("Function", bound=Callable[..., Any])


def _many(
    *names: str, help: str, type: Any = None, metavar: str | None = None
) -> Callable[[Function], Function]:
    """Returns an option that may be given several times."""
    return click.option(
        *names, type=type, multiple=True, metavar=metavar, help=f"{help} Repeatable."
    )


#: The options that describe a job, by their headings in the help.
_OPTIONS: dict[str, tuple[Callable[[Any], Any], ...]] = {
    "Each task": (
        click.option("-n", "--name", help="Name of the job.  [default: a random name]"),
        _many(
            "--tag",
            type=TAG,
            metavar="KEY[=VALUE]",
            help="Tag the job, for `jobs --tag` and `cancel --tag`.",
        ),
        click.option(
            "--note", type=TEXT, default="", help="Line of text about the job, shown by `status`."
        ),
        _many(
            "--notify",
            type=WEBHOOK,
            metavar="URL",
            help="Send the job's end to this webhook, as JSON.",
        ),
        click.option(
            "--cpu",
            type=CPU,
            default="1",
            show_default=True,
            help="Cores for each task, such as 4 or 0.5.",
        ),
        click.option(
            "--memory",
            type=MEMORY,
            default="1g",
            show_default=True,
            help="Memory for each task, such as 8g.",
        ),
        click.option("--disk", type=DISK, default="0", help="Disk for each task, such as 50g."),
        click.option(
            "--tpu",
            type=TPU,
            help="TPU slice, such as v5litepod-16, with a task on each host. Several: any of them.",
        ),
        click.option(
            "--slices",
            type=click.IntRange(min=1),
            help="Number of TPU slices, placed together.  [default: 1]",
        ),
        click.option("--gpu", type=GPU, help="GPUs for each task: H100x8, H100, or 8 of any kind."),
        click.option(
            "--device",
            type=DEVICE,
            default="cpu",
            help="Device for each task: KIND[:VARIANT[:COUNT]].",
        ),
        click.option(
            "--replicas",
            type=int,
            help="Number of tasks.  [default: 1; with --tpu one for each host]",
        ),
        click.option(
            "--array",
            type=ARRAY,
            help="A task for each index, in IRIS_ARRAY_INDEX: 0-99, 0-99:10 or 1,3,7; or for each"
            " row of a .csv, .tsv or .jsonl file, in IRIS_PARAM_COLUMN and for {column} in the"
            " command. With %N at the end, at most N run at once: 0-99%10.",
        ),
        _many("--port", metavar="NAME", help="Reserve a port, passed in IRIS_PORT_NAME."),
        _many(
            "--env", "-e", type=KEY_VALUE, metavar="KEY=VALUE", help="Set an environment variable."
        ),
        _many(
            "--secret",
            type=SECRET,
            metavar="NAME[=SOURCE]",
            help="Set an environment variable to a value that is in no history and no log: that of"
            " your own variable NAME, else of your named secret (iris secret set NAME). SOURCE"
            " names another: env:VARIABLE, file:PATH or secret:NAME of yours; or one that the host"
            " looks up: gcp:SECRET of Secret Manager, host-env:VARIABLE of its agent,"
            " host-file:/PATH.",
        ),
    ),
    "Files and packages": (
        click.option(
            "--workspace",
            type=click.Path(exists=True, file_okay=False),
            metavar="DIR",
            help="Send the files of this directory, except those in .gitignore and .irisignore;"
            " each attempt starts in a copy.  [default: the current directory, if it is a project]",
        ),
        click.option("--no-workspace", is_flag=True, help="Send no files."),
        click.option(
            "--project",
            metavar="DIR",
            help="Directory of the project in the workspace, where the program starts too. "
            " [default: the workspace's own; in a member of a uv workspace the member, and all of"
            " the uv workspace is sent]",
        ),
        _many("--file", type=FILE, help="Also send this file, even if it is ignored or elsewhere."),
        click.option(
            "--workdir",
            help="Start in this directory of the host or image, and send no files. "
            " [default: if local, the current one]",
        ),
        _many("--extra", metavar="NAME", help="Install this extra of pyproject.toml."),
        click.option("--no-sync", is_flag=True, help="Install nothing of the project's files."),
        _many(
            "--pip",
            type=TEXT,
            metavar="REQ",
            help="Also install this package, or with -r FILE those of a requirements file.",
        ),
        _many(
            "--setup",
            type=TEXT,
            metavar="CMD",
            help="Run this shell command first, in each attempt.",
        ),
        click.option(
            "--setup-timeout",
            type=DURATION,
            default=SETUP_TIMEOUT,
            help="How long packages and --setup may take, such as 2h; in a gang also how long its"
            " first host that is ready waits for the last. "
            f" [default: {format_duration(SETUP_TIMEOUT)}]",
        ),
        click.option(
            "--from-checkpoint",
            metavar="JOB",
            help="Start with the files that JOB has saved in $IRIS_CHECKPOINT_DIR: each task with"
            " those of its number. JOB:0: all with those of one task; JOB#2: those of an earlier"
            " run.",
        ),
        click.option(
            "--image",
            type=TEXT,
            metavar="IMAGE",
            help="Container image.  [default: the scale group's]",
        ),
    ),
    "Where and when": (
        click.option(
            "--gang-by",
            type=KEY,
            metavar="KEY",
            help="Place all tasks together, on hosts that share this attribute.",
        ),
        click.option(
            "--tasks-per-host",
            type=click.IntRange(min=1),
            metavar="N",
            help="Tasks of a gang on each host.  [default: 1]",
        ),
        _many("--constraint", type=REQUIRED, help="Required attribute of hosts: 'zone in (a, b)'."),
        _many(
            "--limit",
            type=LIMIT,
            metavar="NAME[=AMOUNT]",
            help="Take this much of a named limit of the cluster, such as licence=1.",
        ),
        _many("--prefer", type=PREFERRED, help="Preferred attribute of hosts."),
        _many("--region", help="Only in this region."),
        _many("--zone", help="Only in this zone. Several: in any of them."),
        click.option(
            "--preemptible/--no-preemptible",
            default=None,
            help="Only on preemptible hosts, or only on others.",
        ),
        click.option(
            "--priority",
            type=click.Choice([band.value for band in Band]),
            help="Priority band; jobs in higher-priority bands may evict others. "
            f" [default: {Band.INTERACTIVE.value}; in a job, that job's]",
        ),
        click.option(
            "--scheduling-timeout",
            type=DURATION,
            help="Fail after waiting this long for hosts, such as 10m.",
        ),
        _many(
            "--after",
            "--after-ok",
            "after",
            type=AFTER,
            help="Start when these jobs have succeeded; end if one of them does not.",
        ),
        _many("--after-any", type=AFTER_ANY, help="Start when these jobs have ended."),
        _many("--after-fail", type=AFTER_FAIL, help="Start when these jobs have failed."),
    ),
    "When it ends": (
        click.option("--timeout", type=DURATION, help="How long a task may run, such as 12h."),
        click.option(
            "--grace",
            type=DURATION,
            default=DEFAULT_GRACE,
            help="Time from SIGTERM to SIGKILL when a task is stopped, such as 2m; also the time"
            " for processes that the program leaves running when it ends. "
            f" [default: {format_duration(DEFAULT_GRACE)}]",
        ),
        click.option(
            "--stop-idle",
            type=STOP_IDLE,
            help="End a task, or a gang, whose GPUs were all used less than 5% for this long, such"
            " as 30m; 30m:10% is another threshold, 30m:warn only warns.",
        ),
        click.option(
            "--max-retries",
            type=int,
            default=0,
            show_default=True,
            help="How often a failed task is retried.",
        ),
        click.option(
            "--max-retries-preemption",
            type=int,
            default=100,
            show_default=True,
            help="How often a preempted task is retried.",
        ),
        click.option(
            "--max-task-failures",
            type=int,
            default=0,
            show_default=True,
            help="How many tasks may fail before the job fails.",
        ),
    ),
}


def spec_options(command: Function) -> Function:
    """Adds the options that describe a job."""
    for option in reversed([option for options in _OPTIONS.values() for option in options]):
        command = option(command)
    return command


class JobCommand(Command):
    """A command with the options that describe a job. Its help groups these options under headings,
    and shows the command's other options last.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[WORDS] = _with_joined_files(args)
        return super().parse_args(ctx, list(ctx.meta[WORDS]))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        left = {
            option.name: record
            for option in options
            if (record := option.get_help_record(ctx)) is not None
        }
        for title, group in _OPTIONS.items():
            with formatter.section(title):
                formatter.write_dl([left.pop(_name(option)) for option in group])
        with formatter.section("This command"):
            formatter.write_dl(list(left.values()))


def _with_joined_files(args: list[str]) -> list[str]:
    """Joins the words `-r` and `FILE` after `--pip`, which takes one word. Leaves the words of the
    command as they are.
    """
    end = args.index("--") if "--" in args else len(args)
    joined: list[str] = []
    at = 0
    while at < end:
        word, at = args[at], at + 1
        if at < end and (word == "--pip=-r" or (word == "-r" and joined[-1:] == ["--pip"])):
            word, at = f"{word} {args[at]}", at + 1
        joined.append(word)
    return [*joined, *args[end:]]


def _name(option: Callable[[Any], Any]) -> str:
    """Returns the name of the parameter that an option adds."""
    return str(option(click.Command("any")).params[0].name)


@click.command(cls=JobCommand, add_help_option=False)
@spec_options
@click.argument("command", nargs=-1, required=True, type=TEXT)
def job_command(**_: Any) -> None:
    """Parses the options and the command of a job in a line of a batch or in a job file."""


def parse_words(words: list[str], defaults: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Parses the words after `iris submit`, and returns the options and the command.

    Args:
        defaults: the values of options that the words do not have.

    Raises:
        click.UsageError: a word is wrong.
    """
    return job_command.make_context("iris submit", words, default_map=dict(defaults or {})).params


#: The names of the parameters that describe a job.
SPEC_OPTIONS = tuple(_name(option) for options in _OPTIONS.values() for option in options)
