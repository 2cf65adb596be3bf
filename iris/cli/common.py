"""Options, parameter types, the choice of the cluster and the output that commands share."""

import asyncio
import contextlib
import json
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from iris.client.client import AsyncIrisClient
from iris.client.connect.cluster_ref import ClusterRef, resolve_cluster
from iris.client.connect.identity import full_job_id, in_a_job
from iris.model.errors import InvalidValue, IrisError, NotFound, Rejected, Unreachable
from iris.model.host.resources import Device, parse_device
from iris.model.job.notifications import parse_webhook
from iris.model.job.tags import parse_tag
from iris.model.units import parse_cpu, parse_duration, parse_size

if TYPE_CHECKING:
    from iris.config import ClusterConfig

T = TypeVar("T")


def _set_cluster(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.find_root().obj.update(cluster=value, from_environment=False)


#: On every command, so that users may put it after the command. It overrides the option before the
#: command.
cluster_option = click.option(
    "--cluster", metavar="NAME|ADDRESS", expose_value=False, callback=_set_cluster,
    help="Name or address of the cluster.  [default: the only known cluster]",
)  # fmt: skip
#: `--config` of a command that acts on a cluster.
config_option = click.option(
    "--config", "file", type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Configuration file of the cluster, instead of NAME.",
)  # fmt: skip
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


class Command(click.Command):
    """A command that refuses an option given twice, if it takes one value. click would silently
    take the last one.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing:
            _, _, given = self.make_parser(ctx).parse_args(args=list(args))
            for param in given:
                once = isinstance(param, click.Option) and not (
                    param.multiple or param.is_flag or param.count
                )
                if once and given.count(param) > 1:
                    ctx.fail(
                        f"{max(param.opts, key=len)} was given {given.count(param)} times; give it"
                        " once"
                    )
        return super().parse_args(ctx, args)


class CommandGroup(click.Group):
    """A group whose help shows the whole first sentence of each command. click cuts it at the width
    of the terminal.
    """

    command_class = Command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(
                [
                    (name, self.commands[name].get_short_help_str(limit=200))
                    for name in sorted(self.commands)
                ]
            )


class Parsed(click.ParamType[Any]):
    """A parameter type that uses one of Iris' parsers. A refused value is a usage error."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except InvalidValue as error:
            self.fail(str(error), param, ctx)


CPU = Parsed("cores", parse_cpu)


MEMORY = Parsed("size", parse_size)
DISK = Parsed("size", lambda text: parse_size(text, "disk"))
DURATION = Parsed("duration", parse_duration)
#: Gives the key and the value.
TAG = Parsed("tag", parse_tag)
WEBHOOK = Parsed("url", parse_webhook)


def _device(text: str) -> "Device | str":
    return parse_device(text) or "cpu"


#: Gives a `Device`, or the text "cpu" for none.
DEVICE = Parsed("kind[:variant[:count]]", _device)


def utf8(text: str) -> str:
    """Returns the text, if it is UTF-8. Python turns other bytes of an argument into surrogates,
    which no history can hold.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidValue(
            "text", repr(text), "is not UTF-8", "put binary data into a file that the program reads"
        ) from None
    return text


TEXT = Parsed("text", utf8)


def key_value(text: str) -> tuple[str, str]:
    """Returns the parts of `KEY=VALUE`."""
    key, equals, value = utf8(text).partition("=")
    if not equals or not key:
        raise InvalidValue("KEY=VALUE", text, "is not a pair", "write NAME=VALUE")
    return key, value


KEY_VALUE = Parsed("key=value", key_value)


def selected(
    ctx: click.Context,
    name: str | None = None,
    file: Path | None = None,
    *,
    none_known: type[NotFound | Unreachable] = Unreachable,
) -> ClusterRef:
    """Returns the cluster that a command acts on, by the precedence of `resolve_cluster`.

    Args:
        name: the command's argument NAME. It overrides the environment variable `IRIS_CLUSTER`.
        file: the command's option `--config`.
        none_known: the error if no cluster is named and none is known here.

    Raises:
        click.UsageError: both a name and a configuration are given, or NAME and `--cluster` differ.
        NotFound, Unreachable, InvalidConfig, InvalidValue: as in `resolve_cluster`.
    """
    if name is not None and file is not None:
        raise click.UsageError("NAME and --config FILE exclude each other")
    options = ctx.find_root().obj
    if (
        name is not None
        and options["cluster"] not in (None, name)
        and not options["from_environment"]
    ):
        raise click.UsageError(
            f"NAME is {name!r} and --cluster is {options['cluster']!r}: name one cluster"
        )
    return resolve_cluster(
        options["cluster"] if name is None else name,
        file or options.get("config"),
        none_known=none_known,
    )


async def locate(cluster: ClusterRef) -> None:
    """Finds a cluster on Google Cloud that has not been used from here. Does nothing for other
    clusters.

    Raises:
        Unreachable: the cluster does not run.
        Rejected: this version cannot reach it.
    """
    if cluster.text is not None and cluster.record is None:
        from iris.client.operate.make_controller import locate

        await asyncio.to_thread(locate, cluster)


class Known(NamedTuple):
    """What is known of an object, or of a list, without the control plane.

    Args:
        text: for people.
        not_asked: the parts of the object that are missing.
        fields: the object as JSON. None for a list: a part of one would look like the whole.
    """

    text: str
    not_asked: str = ""
    fields: Mapping[str, Any] | None = None


def with_client(
    ctx: click.Context,
    work: Callable[[AsyncIrisClient], Awaitable[T]],
    cluster: ClusterRef | None = None,
    *,
    known: Callable[[AsyncIrisClient], Awaitable[Known]] | None = None,
    as_json: bool = False,
) -> T:
    """Connects to the cluster, else to the one that the options select, and runs `work`.

    Args:
        known: returns what is known without the control plane. It is printed if that does not
            answer, before the error.
        as_json: print its fields instead of its text.

    Raises:
        Unreachable: the service does not answer, or the control plane that `work` asks.
    """

    async def run() -> T:
        chosen = cluster or selected(ctx)
        await locate(chosen)
        client = await AsyncIrisClient.connect(chosen)
        try:
            return await work(client)
        except Unreachable:
            if known is not None:
                with contextlib.suppress(
                    IrisError
                ):  # the service does not answer either, as the first error says
                    _print_known(await known(client), as_json=as_json)
            raise

    return asyncio.run(run())


def _print_known(known: Known, *, as_json: bool) -> None:
    if not as_json:
        click.echo(known.text)
    elif known.fields is not None:
        print_json({**known.fields, "not_asked": known.not_asked})


def for_each(
    ctx: click.Context, names: Sequence[str], work: Callable[[AsyncIrisClient, str], Awaitable[str]]
) -> None:
    """Runs `work` for every name, even if it fails for others, and prints the results.

    Raises:
        IrisError: the first failure; the others are printed.
    """

    async def all_of_them(client: AsyncIrisClient) -> list[IrisError]:
        errors = []
        for name in names:
            try:
                click.echo(await work(client, name))
            except IrisError as error:
                errors.append(error)
        return errors

    raise_first(with_client(ctx, all_of_them))


def raise_first(errors: Sequence[BaseException]) -> None:
    """Prints all errors but the first and raises the first, which determines the exit code."""
    for extra in errors[1:]:
        click.echo(f"error: {extra}", err=True)
    if errors:
        raise errors[0]


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2))


def job_and_task(job: str, task: int | None = None) -> tuple[str, int | None]:
    """Returns the id of the job in `NAME`, `USER/NAME` or `NAME:3`, and the number of the task.

    Raises:
        InvalidValue: the text after the colon is not a number, or differs from `task`; or the text
            names a run (`job_and_run`).
    """
    if "#" in job:
        raise InvalidValue(
            "job",
            job,
            "names one run",
            "this command acts on the latest run: leave out # and the number",
        )
    name, colon, number = job.partition(":")
    if colon:
        if not number.isdecimal():
            raise InvalidValue(
                "job", job, "does not name a task", "write NAME:NUMBER, such as train:3"
            )
        if task not in (None, int(number)):
            raise InvalidValue("job", job, f"differs from --task {task}", "name the task once")
        task = int(number)
    return full_job_id(name), task


async def named_job(client: AsyncIrisClient, text: str) -> str:
    """Returns the id of the job in `NAME`, `USER/NAME`, or with a run or a task: `NAME#2:3`. In a
    job, NAME is its child first.

    Raises:
        InvalidValue: the text does not name a job.
        Unreachable: the service does not answer.
    """
    name = text.partition("#")[0].partition(":")[0]
    return (
        await client.jobs.resolve_id(name) if in_a_job() and "/" not in name else full_job_id(name)
    )


async def whole_job(client: AsyncIrisClient, text: str) -> str:
    """Returns the id of the job as `named_job` does; of `NAME:0`, as lists print it, if the job has
    no other task.

    Raises:
        NotFound: there is no such job.
        Rejected: the text names one of several tasks.
    """
    _, task = job_and_task(text)
    job = await named_job(client, text)
    if task is None:
        return job
    tasks = (await client.jobs.log_source(job)).tasks
    if (task, tasks) != (0, 1):
        raise Rejected(
            f"{text} is a task of {job}, which has {tasks}; this command acts on whole jobs: name"
            f" {job}"
        )
    return job


def named_cluster(ctx: click.Context) -> str:
    """Returns `iris` for hints at other commands, with `--cluster` if this command was given that
    option.
    """
    options = ctx.find_root().obj
    named = options["cluster"] is not None and not options["from_environment"]
    return f"iris --cluster {options['cluster']}" if named else "iris"


def show_progress(text: str) -> None:
    """Prints a progress message on standard error."""
    click.echo(text, err=True)


def show_risks(config: "ClusterConfig") -> None:
    """Prints what the configuration risks as warnings on standard error."""
    from iris.config import risks  # most commands need no configuration

    for risk in risks(config):
        click.echo(f"warning: {risk}", err=True)


def confirm(question: str, details: Callable[[], None] = lambda: None) -> None:
    """Asks the user, on standard error.

    Args:
        details: shows what the question is about, if there is a terminal.

    Raises:
        click.UsageError: there is no terminal to ask on.
        click.Abort: the user does not want it.
    """
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} There is no terminal to confirm on; add --yes.")
    details()
    click.confirm(question, abort=True, err=True)
