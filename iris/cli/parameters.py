"""Options and arguments that several commands share, and the types of their values."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from iris.model.errors import InvalidValue
from iris.model.host.resources import Device, parse_device
from iris.model.job.notifications import parse_webhook
from iris.model.job.tags import parse_tag
from iris.model.units import parse_cpu, parse_duration, parse_size


class Parsed(click.ParamType[Any]):
    """A parameter type that uses one of Iris' parsers. A refused value is a usage error.

    Args:
        name: the placeholder of the value in the help.
        parse: returns the value, or raises `InvalidValue`.
    """

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


CPU = Parsed("cores", parse_cpu)
MEMORY = Parsed("size", parse_size)
DISK = Parsed("size", lambda text: parse_size(text, "disk"))
#: The value is a `Device`, or the text "cpu" for no device.
DEVICE = Parsed("kind[:variant[:count]]", _device)
DURATION = Parsed("duration", parse_duration)
#: The value is a key with its value.
TAG = Parsed("tag", parse_tag)
WEBHOOK = Parsed("url", parse_webhook)
TEXT = Parsed("text", utf8)
KEY_VALUE = Parsed("key=value", key_value)


def _set_cluster(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.find_root().obj.update(cluster=value, from_environment=False)


#: `--cluster` behind a command. It overrides `iris --cluster` before the command.
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
