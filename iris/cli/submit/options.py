"""Defines the options of `iris submit`, and builds the job that they describe."""

import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from pydantic import ValidationError

from iris.cli.command import Command
from iris.cli.name_completion import Kind, names_of
from iris.cli.parameters import (
    CPU,
    DEVICE,
    DISK,
    DURATION,
    KEY_VALUE,
    MEMORY,
    TAG,
    TEXT,
    WEBHOOK,
    Parsed,
)
from iris.cli.submit.workspace import files_of, files_options, inherits_files
from iris.client.build.arrays import GivenArray, parse_array
from iris.client.build.options import checkpoint_source, invalid_job, tasks_of
from iris.client.connect.identity import current_user, in_a_job
from iris.client.workspace.extra_files import parse_extra
from iris.model.host.accelerators import TpuRequest, parse_gpu, parse_tpu
from iris.model.host.constraints import (
    Constraint,
    check_key,
    parse_constraint,
    preemptible_constraint,
    region_constraint,
    zone_constraint,
)
from iris.model.host.resources import Device, Resources
from iris.model.job.dependencies import Condition, Dependency, parse_dependencies
from iris.model.job.environments import SETUP_TIMEOUT
from iris.model.job.secrets import parse_secret
from iris.model.job.spec import DEFAULT_GRACE, Band, Coscheduling, JobSpec
from iris.model.units import format_duration

if TYPE_CHECKING:
    from iris.client.jobs.parent import EnclosingJob

#: Give a `TpuRequest`, a `Device`, the text itself, `Constraint`s, an `ExtraFile`, a name with its
#: source, a `GivenArray`, and `Dependency`s.
TPU = Parsed("variant[,variant]", parse_tpu)
GPU = Parsed("variant[xcount]", parse_gpu)
KEY = Parsed("key", lambda text: check_key(text, "gang-by"))
REQUIRED = Parsed("constraint", parse_constraint)
PREFERRED = Parsed("constraint", lambda text: parse_constraint(text, preferred=True))
FILE = Parsed("path[:dest]", parse_extra)
SECRET = Parsed("secret", parse_secret)
ARRAY = Parsed("indices|file", parse_array)


def _dependencies(text: str, on: Condition) -> tuple[Dependency, ...]:
    return parse_dependencies(text, on, current_user(), in_job=in_a_job())


AFTER = Parsed("job[,job]", lambda text: _dependencies(text, Condition.OK), Kind.JOBS)
AFTER_ANY = Parsed("job[,job]", lambda text: _dependencies(text, Condition.ANY), Kind.JOBS)
AFTER_FAIL = Parsed("job[,job]", lambda text: _dependencies(text, Condition.FAIL), Kind.JOBS)

#: The words of the command line, in the `meta` of its context.
WORDS = "iris.cli.words"

Function = TypeVar("Function", bound=Callable[..., Any])

#: The options by the headings under which the help shows them.
_OPTIONS: dict[str, tuple[Callable[[Any], Any], ...]] = {
    "Each task": (
        click.option("-n", "--name", help="Name of the job.  [default: a random name]"),
        click.option(
            "--tag", type=TAG, multiple=True, metavar="KEY[=VALUE]",
            help="Tag the job, for `jobs --tag` and `cancel --tag`. Repeatable.",
        ),
        click.option("--note", type=TEXT, default="", help="Line of text about the job, shown by `status`."),
        click.option(
            "--notify", type=WEBHOOK, multiple=True, metavar="URL",
            help="Send the job's end to this webhook, as JSON. Repeatable.",
        ),
        click.option("--cpu", type=CPU, default="1", show_default=True, help="Cores for each task, such as 4 or 0.5."),
        click.option("--memory", type=MEMORY, default="1g", show_default=True, help="Memory for each task, such as 8g."),
        click.option("--disk", type=DISK, default="0", help="Disk for each task, such as 50g."),
        click.option("--tpu", type=TPU, help="TPU slice, such as v5litepod-16, with a task on each host. Several: any of them."),
        click.option("--slices", type=click.IntRange(min=1), help="Number of TPU slices, placed together.  [default: 1]"),
        click.option("--gpu", type=GPU, help="GPUs for each task: H100x8, H100, or 8 of any kind."),
        click.option("--device", type=DEVICE, default="cpu", help="Device for each task: KIND[:VARIANT[:COUNT]]."),
        click.option(
            "--replicas", type=int, help="Number of tasks.  [default: 1; with --tpu one for each host]"
        ),
        click.option(
            "--array", type=ARRAY,
            help="A task for each index, in IRIS_ARRAY_INDEX: 0-99, 0-99:10 or 1,3,7; or for each row of a .csv, .tsv or .jsonl "
            "file, in IRIS_PARAM_COLUMN and for {column} in the command. With %N at the end, at most N run at once: 0-99%10.",
        ),
        click.option("--port", multiple=True, metavar="NAME", help="Reserve a port, passed in IRIS_PORT_NAME. Repeatable."),
        click.option(
            "--env", "-e", type=KEY_VALUE, multiple=True, metavar="KEY=VALUE", help="Set an environment variable. Repeatable."
        ),
        click.option(
            "--secret", type=SECRET, multiple=True, metavar="NAME[=SOURCE]",
            help="Set an environment variable to a value that is in no history and no log: that of your own variable NAME, else "
            "of your named secret (iris secret set NAME). SOURCE names another: env:VARIABLE, file:PATH or secret:NAME of yours; "
            "or one that the host looks up: gcp:SECRET of Secret Manager, host-env:VARIABLE of its agent, host-file:/PATH. "
            "Repeatable.",
        ),
    ),
    "Files and packages": (
        click.option(
            "--workspace", type=click.Path(exists=True, file_okay=False), metavar="DIR",
            help="Send the files of this directory, except those in .gitignore and .irisignore; each attempt starts in a copy.  "
            "[default: the current directory, if it is a project]",
        ),
        click.option("--no-workspace", is_flag=True, help="Send no files."),
        click.option(
            "--project", metavar="DIR",
            help="Directory of the project in the workspace, where the program starts too.  "
            "[default: the workspace's own; in a member of a uv workspace the member, and all of the uv workspace is sent]",
        ),
        click.option(
            "--file", type=FILE, multiple=True, help="Also send this file, even if it is ignored or elsewhere. Repeatable."
        ),
        click.option(
            "--workdir",
            help="Start in this directory of the host or image, and send no files.  [default: if local, the current one]",
        ),
        click.option("--extra", multiple=True, metavar="NAME", help="Install this extra of pyproject.toml. Repeatable."),
        click.option("--no-sync", is_flag=True, help="Install nothing of the project's files."),
        click.option(
            "--pip", type=TEXT, multiple=True, metavar="REQ",
            help="Also install this package, or with -r FILE those of a requirements file. Repeatable.",
        ),
        click.option(
            "--setup", type=TEXT, multiple=True, metavar="CMD", help="Run this shell command first, in each attempt. Repeatable."
        ),
        click.option(
            "--setup-timeout", type=DURATION, default=SETUP_TIMEOUT,
            help="How long packages and --setup may take, such as 2h; in a gang also how long its first host that is ready "
            f"waits for the last.  [default: {format_duration(SETUP_TIMEOUT)}]",
        ),
        click.option(
            "--from-checkpoint", metavar="JOB", shell_complete=names_of(Kind.JOBS),
            help="Start with the files that JOB has saved in $IRIS_CHECKPOINT_DIR: each task with those of its number. "
            "JOB:0: all with those of one task; JOB#2: those of an earlier run.",
        ),
        click.option("--image", type=TEXT, metavar="IMAGE", help="Container image.  [default: the scale group's]"),
    ),
    "Where and when": (
        click.option("--gang-by", type=KEY, metavar="KEY", help="Place all tasks together, on hosts that share this attribute."),
        click.option(
            "--tasks-per-host", type=click.IntRange(min=1), metavar="N", help="Tasks of a gang on each host.  [default: 1]"
        ),
        click.option(
            "--constraint", type=REQUIRED, multiple=True, help="Required attribute of hosts: 'zone in (a, b)'. Repeatable."
        ),
        click.option("--prefer", type=PREFERRED, multiple=True, help="Preferred attribute of hosts. Repeatable."),
        click.option("--region", multiple=True, help="Only in this region. Repeatable."),
        click.option("--zone", multiple=True, help="Only in this zone. Several: in any of them. Repeatable."),
        click.option(
            "--preemptible/--no-preemptible", default=None, help="Only on preemptible hosts, or only on others."
        ),
        click.option(
            "--priority", type=click.Choice([band.value for band in Band]),
            help="Priority band; jobs in higher-priority bands may evict others.  "
            f"[default: {Band.INTERACTIVE.value}; in a job, that job's]",
        ),
        click.option("--scheduling-timeout", type=DURATION, help="Fail after waiting this long for hosts, such as 10m."),
        click.option(
            "--after", "--after-ok", "after", type=AFTER, multiple=True,
            help="Start when these jobs have succeeded; end if one of them does not. Repeatable.",
        ),
        click.option("--after-any", type=AFTER_ANY, multiple=True, help="Start when these jobs have ended. Repeatable."),
        click.option("--after-fail", type=AFTER_FAIL, multiple=True, help="Start when these jobs have failed. Repeatable."),
    ),
    "When it ends": (
        click.option("--timeout", type=DURATION, help="How long a task may run, such as 12h."),
        click.option(
            "--grace", type=DURATION, default=DEFAULT_GRACE,
            help="Time from SIGTERM to SIGKILL when a task is stopped, such as 2m; also the time for processes that the program "
            "leaves running when it ends.  "
            f"[default: {format_duration(DEFAULT_GRACE)}]",
        ),
        click.option("--max-retries", type=int, default=0, show_default=True, help="How often a failed task is retried."),
        click.option(
            "--max-retries-preemption", type=int, default=100, show_default=True, help="How often a preempted task is retried."
        ),
        click.option(
            "--max-task-failures", type=int, default=0, show_default=True, help="How many tasks may fail before the job fails."
        ),
    ),
}  # fmt: skip


def spec_options(command: Function) -> Function:
    """Adds the options that describe a job."""
    for option in reversed([option for options in _OPTIONS.values() for option in options]):
        command = option(command)
    return command


class JobCommand(Command):
    """A command with the options that describe a job. Its help shows them under their headings, and
    its own options last.
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
    """Joins the words `-r FILE` after `--pip`, which takes one word, up to the command that is to
    run.
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
    """Only the options and the command of a job, as a line of a batch or a job file has them."""


def parse_words(words: list[str], defaults: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Returns the options and the command that the words after `iris submit` give.

    Args:
        defaults: values of options that the words lack.

    Raises:
        click.UsageError: a word is wrong.
    """
    return job_command.make_context("iris submit", words, default_map=dict(defaults or {})).params


#: The names of the parameters that describe a job.
SPEC_OPTIONS = tuple(_name(option) for options in _OPTIONS.values() for option in options)


def make_spec(
    options: dict[str, Any], *, shares_files: bool, within: "EnclosingJob | None" = None
) -> JobSpec:
    """Returns the job that the options describe, without its files.

    Args:
        shares_files: whether the hosts see the same files as the submitting process, as in a local
            cluster.
        within: the job that it belongs to.

    Raises:
        InvalidJob: the job is invalid; the message has every problem.
        click.UsageError: options contradict each other.
    """
    if within is not None:
        from iris.client.jobs.child_digest import work_of_command  # few commands are typed in a job

        given = {name for name in ("workdir", "priority") if options[name] is not None}
        given |= set() if inherits_files(options, within) else {"files"}
        spec = make_spec(files_options(options, within), shares_files=shares_files)
        given_array: GivenArray | None = options["array"]
        rows = () if given_array is None or given_array.table is None else given_array.table.lines()
        does = work_of_command([*spec.command, *rows], spec, os.environ)
        return within.child(spec, does, named=options["name"] is not None, given=given)
    files = files_of(options, shares_files=shares_files)
    if options["extra"] and not files.sent:
        raise click.UsageError(
            "--extra needs a project in the workspace; name its directory with --workspace DIR"
        )
    here = (
        shares_files and not files.sent and options["image"] is None
    )  # a container does not have the current directory
    workdir = options["workdir"] or (str(Path.cwd()) if here else None)
    replicas, together = _tasks(options)
    array: GivenArray | None = options["array"]
    try:
        return JobSpec(
            user=current_user(),
            name=f"job-{secrets.token_hex(4)}" if options["name"] is None else options["name"],
            command=options["command"],
            resources=Resources(
                cpu_millis=options["cpu"],
                memory_bytes=options["memory"],
                disk_bytes=options["disk"],
                device=_device(options),
            ),
            array=None if array is None else array.array,
            replicas=replicas,
            coscheduling=together,
            constraints=_constraints(options),
            env=dict(options["env"]),
            secrets=dict(options["secret"]),
            workdir=workdir,
            environment={
                "sync": not options["no_sync"],
                "extras": options["extra"],
                "pip": files.pip,
                "project": files.project.project if files.project is not None else "",
                "setup": options["setup"],
                "setup_timeout": options["setup_timeout"],
            },
            from_checkpoint=checkpoint_source(options["from_checkpoint"]),
            image=options["image"],
            ports=options["port"],
            band=Band(options["priority"] or Band.INTERACTIVE),
            scheduling_timeout=options["scheduling_timeout"],
            timeout=options["timeout"],
            grace=options["grace"],
            max_retries_failure=options["max_retries"],
            max_retries_preemption=options["max_retries_preemption"],
            max_task_failures=options["max_task_failures"],
            after=[
                each
                for name in ("after", "after_any", "after_fail")
                for given in options[name]
                for each in given
            ],
            tags=dict(options["tag"]),
            note=options["note"],
            notify=options["notify"],
        )
    except ValidationError as error:
        raise invalid_job(error) from None


def _device(options: dict[str, Any]) -> Device | None:
    given = [f"--{name}" for name in ("tpu", "gpu") if options[name] is not None]
    given += ["--device"] if isinstance(options["device"], Device) else []
    if len(given) > 1:
        raise click.UsageError(
            f"{' and '.join(given)} exclude each other: a task has devices of one kind"
        )
    if options["tpu"] is not None:
        tpu: TpuRequest = options["tpu"]
        return tpu.device
    device = options["gpu"] or options["device"]
    return device if isinstance(device, Device) else None


def _tasks(options: dict[str, Any]) -> tuple[int, Coscheduling | None]:
    """Returns the number of tasks, and how they are coscheduled. TPU slices have one task for each
    host, all coscheduled.
    """
    replicas, tpu, slices, key = (
        options["replicas"],
        options["tpu"],
        options["slices"],
        options["gang_by"],
    )
    each, array = options["tasks_per_host"], options["array"]
    if array is not None:
        _check_array(options)
        return array.array.size, None
    if tpu is None:
        if slices is not None:
            raise click.UsageError("--slices needs --tpu with the type of the slices")
        if key is None:
            if each is not None:
                raise click.UsageError(
                    "--tasks-per-host needs --gang-by with the attribute that the gang's hosts"
                    " share"
                )
            return 1 if replicas is None else replicas, None
        return 1 if replicas is None else replicas, Coscheduling(
            group_by=key, tasks_per_host=1 if each is None else each
        )
    if each is not None:
        raise click.UsageError(
            "--tasks-per-host and --tpu exclude each other: a task with --tpu has all chips of its"
            " host"
        )
    if key is not None:
        raise click.UsageError(
            "--gang-by and --tpu exclude each other: tasks with --tpu are placed together by slice"
        )
    return tasks_of(tpu, slices, replicas)


def _check_array(options: dict[str, Any]) -> None:
    """Raises:
    click.UsageError: an option does not go with `--array`.
    """
    if options["replicas"] is not None:
        raise click.UsageError(
            "--array and --replicas exclude each other: an array has a task for each index or row"
        )
    for name in ("gang_by", "tasks_per_host", "slices"):
        if options[name] is not None:
            option = f"--{name.replace('_', '-')}"
            raise click.UsageError(
                f"--array and {option} exclude each other: the tasks of an array start one by one"
            )
    if (tpu := options["tpu"]) is not None and tpu.hosts > 1:
        raise click.UsageError(
            f"--array and --tpu {tpu.device.variant} exclude each other: a task of an array has one"
            f" host, and such a slice has {tpu.hosts}; submit a job for each value with --batch"
        )


def _constraints(options: dict[str, Any]) -> tuple[Constraint, ...]:
    found = [*options["constraint"], *options["prefer"]]
    if options["region"]:
        found.append(region_constraint(options["region"]))
    if options["zone"]:
        found.append(zone_constraint(*options["zone"]))
    if options["preemptible"] is not None:
        found.append(preemptible_constraint(options["preemptible"]))
    return tuple(found)
