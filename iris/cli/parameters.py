"""Options and arguments that several commands share, and the types of their values."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from iris.cli.name_completion import Kind, names_of
from iris.model.errors import InvalidValue
from iris.model.host.resources import Device, parse_device
from iris.model.ip_address import parse_ip
from iris.model.job.notifications import parse_webhook
from iris.model.job.tags import parse_tag
from iris.model.quotas import parse_limit
from iris.model.units import parse_cpu, parse_duration, parse_size

F = TypeVar("F", bound=Callable[..., Any])


def metrics_options(function: F) -> F:
    """Adds the options `--metrics-port` and `--metrics-address`. Both are None if they are not
    given.
    """
    port = click.option(
        "--metrics-port",
        type=click.IntRange(0, 65535),
        help=(
            "Port for Prometheus; 0: none.  [default: from the configuration, which by default has"
            " none]"
        ),
    )
    address = click.option(
        "--metrics-address",
        type=Parsed("ip", parse_ip),
        help=(
            "Address of this machine for --metrics-port.  [default: from the configuration, which"
            " by default has 127.0.0.1]"
        ),
    )
    return port(address(function))


class Parsed(click.ParamType[Any]):
    """A click parameter type that uses one of Iris' parsers. An invalid value is a usage error.

    Args:
        name: the placeholder of the value in the help.
        parse: returns the value, or raises `InvalidValue`.
        names: the kind of name that a shell completes as a value.
    """

    def __init__(self, name: str, parse: Callable[[str], Any], names: Kind | None = None) -> None:
        self.name = name
        self._parse = parse
        self._names = names

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except InvalidValue as error:
            self.fail(str(error), param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [] if self._names is None else names_of(self._names)(ctx, param, incomplete)


def utf8(text: str) -> str:
    """Returns the text unchanged.

    Python turns bytes of an argument that are not UTF-8 into surrogates. Temporal cannot store
    those.

    Raises:
        InvalidValue: the text is not UTF-8.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidValue(
            "text", repr(text), "is not UTF-8", "put binary data into a file that the program reads"
        ) from None
    return text


def key_value(text: str) -> tuple[str, str]:
    """Returns the key and the value of `KEY=VALUE`."""
    key, equals, value = utf8(text).partition("=")
    if not equals or not key:
        raise InvalidValue("KEY=VALUE", text, "is not a pair", "write NAME=VALUE")
    return key, value


def _device(text: str) -> "Device | str":
    return parse_device(text) or "cpu"


def parse_moment(text: str) -> datetime:
    """Parses a time: a duration before now (`7d`), a day (`2026-11-01`, by UTC) or a time in ISO
    8601. A time without a zone is one by UTC.

    Raises:
        InvalidValue: the text is none of them.
    """
    try:
        return datetime.now(UTC) - parse_duration(text)
    except InvalidValue:
        pass
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        remedy = "write 7d, 2026-11-01 or 2026-11-01T12:00"
        raise InvalidValue("time", text, "is not a time", remedy) from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


CPU = Parsed("cores", parse_cpu)
MEMORY = Parsed("size", parse_size)
DISK = Parsed("size", lambda text: parse_size(text, "disk"))
#: The type of an option whose value is a device. It returns a `Device`, or the text "cpu" for no
#: device.
DEVICE = Parsed("kind[:variant[:count]]", _device)
DURATION = Parsed("duration", parse_duration)
#: The type of an option whose value is a tag. It returns the key and the value of the tag.
TAG = Parsed("tag", parse_tag)
MOMENT = Parsed("time", parse_moment)
LIMIT = Parsed("limit", parse_limit)
WEBHOOK = Parsed("url", parse_webhook)
TEXT = Parsed("text", utf8)
KEY_VALUE = Parsed("key=value", key_value)


def _set_cluster(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.find_root().obj.update(cluster=value, from_environment=False)


#: The option `--cluster` after a command's name. It overrides the option in `iris --cluster NAME
#: COMMAND`.
cluster_option = click.option(
    "--cluster",
    metavar="NAME|ADDRESS",
    expose_value=False,
    callback=_set_cluster,
    shell_complete=names_of(Kind.CLUSTERS),
    help="Name or address of the cluster.  [default: the only known cluster]",
)
#: The argument `NAME` of a command that acts on one cluster.
cluster_argument = click.argument("name", required=False, shell_complete=names_of(Kind.CLUSTERS))
#: The option `--config` of a command that acts on one cluster.
config_option = click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Configuration file of the cluster, instead of NAME.",
)
job_argument = click.argument("job", shell_complete=names_of(Kind.JOBS))
jobs_argument = click.argument("job", nargs=-1, required=True, shell_complete=names_of(Kind.JOBS))
#: The argument `JOB[:TASK]` of a command that acts on one task.
task_argument = click.argument("job", metavar="JOB[:TASK]", shell_complete=names_of(Kind.JOBS))
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Show what would be done, and change nothing."
)
yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")


def group_option(help_text: str) -> Callable[[F], F]:
    """Returns `--group`, which names a scale group."""
    return click.option(
        "--group", metavar="NAME", shell_complete=names_of(Kind.GROUPS), help=help_text
    )


def reason_option(shown_by: str) -> Callable[[F], F]:
    """Returns `--reason`.

    Args:
        shown_by: where users see the reason, such as "by `iris status`".
    """
    return click.option("--reason", default="", help=f"Reason, shown {shown_by}.")


def limit_option(default: int, objects: str = "") -> Callable[[F], F]:
    """Returns `--limit`, which bounds a list.

    Args:
        objects: what the list has, if the help needs to say so.
    """
    return click.option(
        "--limit",
        type=click.IntRange(min=1),
        default=default,
        show_default=True,
        help=f"Show at most this many{objects and f' {objects}'}.",
    )


def time_options(default: str) -> Callable[[F], F]:
    """Returns `--since` and `--until`, which bound a time.

    Args:
        default: the length of the time, if `--since` is not given.
    """
    since = click.option(
        "--since",
        type=MOMENT,
        default=None,
        show_default=default,
        help="Begin of the time: 7d before now, 2026-11-01 or 2026-11-01T12:00, by UTC.",
    )
    until = click.option(
        "--until", type=MOMENT, default=None, show_default="now", help="End of the time."
    )
    return lambda function: since(until(function))


def page_option(objects: str) -> Callable[[F], F]:
    """Returns `--page`, which selects the part of a list to show."""
    return click.option(
        "--page",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        help=f"Show the {objects} of this page.",
    )
