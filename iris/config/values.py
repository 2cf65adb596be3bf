"""Reads the values of a configuration file into the types of Iris, and writes them back as text."""

import math
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Annotated, Any, ClassVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PlainSerializer,
    Strict,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)
from pydantic.json_schema import JsonSchemaValue

from iris.config.texts import check_lines
from iris.model.errors import InvalidValue
from iris.model.frozen import Frozen
from iris.model.host.resources import parse_device
from iris.model.job.secrets import SecretKind, parse_secret_source
from iris.model.units import GIB, MIB, TIB, parse_bytes, parse_cpu, parse_duration

#: The limit on durations in a configuration. A larger value is a mistake in the unit.
MAX_CONFIG_DURATION = timedelta(days=365)
DURATION_PARTS = ("days", "hours", "minutes", "seconds", "milliseconds")
_SECRET_FILE = re.compile(r"file:/.+")
#: Matches the name of an OAuth scope. Source:
#: developers.google.com/identity/protocols/oauth2/scopes
_SCOPE = re.compile(r"[a-z][a-z0-9._-]*")
_MILLISECOND = timedelta(milliseconds=1)


class Section(Frozen):
    """A section of the configuration. It is immutable and refuses unknown keys."""

    #: The names of the fields whose texts may contain any characters.
    free_texts: ClassVar[frozenset[str]] = frozenset()

    model_config = ConfigDict(extra="forbid")

    @field_validator("*")
    @classmethod
    def _has_texts_of_one_line(cls, value: object, info: ValidationInfo) -> object:
        """Checks every text, because nearly every text ends up in a file or a command line of
        another program.
        """
        return value if info.field_name in cls.free_texts else check_lines(value)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: Any, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Returns the JSON schema with the defaults in the form that users write: `10s`, not
        `PT10S`.
        """
        made = handler.resolve_ref_schema(handler(schema))
        defaults = cls.model_construct().model_dump(mode="json")
        for name, field in made["properties"].items():
            if name in defaults:
                field["default"] = defaults[name]
        return made


def platforms_of(section: Section) -> list[str]:
    """Returns which of gcp, manual and local the section sets."""
    return [name for name in ("gcp", "manual", "local") if getattr(section, name) is not None]


def read_duration(value: object) -> timedelta:
    """Parses `"10s"`, `{seconds: 10}` or a plain number of seconds, rounded to the millisecond.

    Raises:
        InvalidValue: the value is not a duration, is negative, or is longer than a year.
    """
    if isinstance(value, timedelta):
        found = value
    elif isinstance(value, Mapping):
        found = _sum_of_parts(value)
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        found = parse_duration(value)
    else:
        raise InvalidValue(
            "duration",
            value,
            "is not a duration",
            'write a number with a unit, such as "30s" or {seconds: 30}',
        )
    if found < timedelta():
        raise InvalidValue("duration", value, "is negative", "use 0 or more")
    if found > MAX_CONFIG_DURATION:
        raise InvalidValue("duration", value, "is longer than a year", "check the unit")
    return timedelta(milliseconds=round(found / _MILLISECOND))


def _sum_of_parts(value: Mapping[Any, Any]) -> timedelta:
    remedy = f"use any of {', '.join(DURATION_PARTS)}, such as {{seconds: 10}}"
    if not value:
        raise InvalidValue("duration", value, "is empty", remedy)
    for part, number in value.items():
        if part not in DURATION_PARTS:
            raise InvalidValue("duration", value, f"has the unknown time unit {part!r}", remedy)
        if (
            isinstance(number, bool)
            or not isinstance(number, int | float)
            or not math.isfinite(number)
            or abs(number) > 1e12
        ):
            raise InvalidValue(
                "duration",
                value,
                f"gives {part} as {number!r}, which is not a valid number",
                remedy,
            )
    return timedelta(**value)


def write_duration(duration: timedelta) -> str:
    """Returns the exact duration, to the millisecond, in the form that `read_duration` parses:
    `1h30m`, `500ms`, `0s`.
    """
    left, parts = round(duration / _MILLISECOND), []
    for unit, scale in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, left = divmod(left, scale)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def _lasting(duration: timedelta) -> timedelta:
    if not duration:
        raise InvalidValue("duration", "0s", "is zero", "use a duration above zero")
    return duration


def read_size(value: object) -> int:
    """Parses `"8g"`, `"512m"` or a plain number of bytes.

    Raises:
        InvalidValue: the value is not a size.
    """
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise InvalidValue(
            "size",
            value,
            "is not a size",
            'write a number with a unit, such as "512m", "8g" or "1.5t"',
        )
    return parse_bytes(value, "size")


def write_size(size: int) -> str | int:
    """Returns the exact size in the largest unit that divides it (`8g`, `1536m`), otherwise as a
    number of bytes.
    """
    for unit, scale in (("t", TIB), ("g", GIB), ("m", MIB)):
        if size and size % scale == 0:
            return f"{size // scale}{unit}"
    return size


def _read_cores(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InvalidValue(
            "cpu",
            value,
            "is not a number of cores",
            'write a number of cores, such as "4" or "0.5"',
        )
    return parse_cpu(value) / 1000


def _write_cores(cores: float) -> float | int:
    return int(cores) if cores == int(cores) else cores


def _read_device(value: object) -> str:
    """Returns the device in the form that `parse_device` parses. Refuses alternatives, because a
    machine has one variant.
    """
    if not isinstance(value, str):
        raise InvalidValue(
            "device",
            value,
            "is not a device",
            'write KIND:VARIANT:COUNT, such as "gpu:H100:8", or "cpu" for none',
        )
    device = parse_device(value)
    if device is not None and "," in device.variant:
        raise InvalidValue(
            "device",
            value,
            "has several variants, but all machines of a group have the same one",
            "name only that variant, such as gpu:H100:8",
        )
    return str(device or "cpu")


def _read_scope(value: str) -> str:
    if _SCOPE.fullmatch(value) is None:
        raise InvalidValue(
            "scope",
            value,
            "is not the name of a scope",
            "write it without the URL: devstorage.read_write",
        )
    return value


def _read_secret_source(value: object) -> str:
    """Returns the reference unchanged. The error does not show the value, because it may be the
    secret itself.
    """
    if isinstance(value, str):
        if not value or _SECRET_FILE.fullmatch(value) is not None:
            return value
        with suppress(InvalidValue):
            if parse_secret_source("", value).kind is SecretKind.GCP:
                return value
    remedy = (
        "write gcp:SECRET for one in Google Secret Manager or file:/PATH for a file of the machine,"
        " never the value itself"
    )
    raise InvalidValue("secret", "***", "is not a reference to a secret", remedy)


_DURATION_SCHEMA = {
    "anyOf": [
        {
            "type": "string",
            "pattern": r"^\s*([0-9]+(\.[0-9]+)?|([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+)\s*$",
        },
        {"type": "number", "minimum": 0, "description": "seconds"},
        {
            "type": "object",
            "properties": {part: {"type": "number"} for part in DURATION_PARTS},
            "additionalProperties": False,
            "minProperties": 1,
        },
    ]
}
#: A duration: `10s`, `{seconds: 10}` or a number of seconds. Zero is allowed.
Duration = Annotated[
    timedelta,
    BeforeValidator(read_duration),
    PlainSerializer(write_duration, return_type=str, when_used="json"),
    WithJsonSchema(_DURATION_SCHEMA),
]
#: A duration above zero: `10s`, `{seconds: 10}` or a number of seconds.
LastingDuration = Annotated[
    timedelta,
    BeforeValidator(read_duration),
    AfterValidator(_lasting),
    PlainSerializer(write_duration, return_type=str, when_used="json"),
    WithJsonSchema(_DURATION_SCHEMA),
]
#: A size: `8g`, `512m` or a number of bytes.
Size = Annotated[
    int,
    BeforeValidator(read_size),
    PlainSerializer(write_size, return_type=str | int, when_used="json"),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "integer", "minimum": 0}]}),
]
#: A number of cores, to the thousandth; `500m` is half a core.
Cores = Annotated[
    float,
    BeforeValidator(_read_cores),
    PlainSerializer(_write_cores, return_type=float | int, when_used="json"),
    WithJsonSchema({"anyOf": [{"type": "number", "minimum": 0}, {"type": "string"}]}),
]
#: A device: `gpu:H100:8`, or `cpu` for no accelerator.
DeviceText = Annotated[str, BeforeValidator(_read_device), WithJsonSchema({"type": "string"})]
#: A reference to a secret: `gcp:SECRET` or `file:/PATH`; empty for none. The machine that needs the
#: secret looks it up.
SecretSource = Annotated[
    str, BeforeValidator(_read_secret_source), WithJsonSchema({"type": "string"})
]
#: The name of one of Google's OAuth scopes, without the URL.
Scope = Annotated[str, AfterValidator(_read_scope)]
#: A boolean. It is strict, because YAML has booleans: a text or number that looks like one is a
#: mistake.
Flag = Annotated[bool, Strict()]
Whole = Annotated[int, Strict()]
Count = Annotated[int, Strict(), Field(ge=0)]
Rate = Annotated[int, Strict(), Field(ge=1)]
Port = Annotated[int, Strict(), Field(ge=1, le=65535)]
AnyPort = Annotated[int, Strict(), Field(ge=0, le=65535)]
