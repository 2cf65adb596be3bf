"""Constraints on the attributes of hosts: their values, their text form, the check of a host, and
contradictions between them.

An attribute is a string, a number or a boolean. Values of different types are never equal: `true`
is not `1`, and `"4"` is not `4`.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, Self

from pydantic import (
    PlainSerializer,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    model_validator,
)

from iris.model.errors import InvalidValue
from iris.model.frozen import Frozen


def _as_it_is(value: Any) -> Any:
    return value


#: The value of a host's attribute. The type needs its own serializer, because Pydantic's serializer
#: of this union can write `true` as `1`: inside a union of messages, Pydantic tries the strict
#: serializers first. They fail if a model in the message has evaluated a `cached_property`. Then
#: Pydantic tries the lax serializers, and the lax serializer of `int` accepts a `bool`.
Attribute = Annotated[StrictBool | StrictInt | StrictFloat | StrictStr, PlainSerializer(_as_it_is)]

# The keys that Iris itself sets on hosts. Users may give their own hosts any other keys.
#: The provider's region, such as us-west4.
REGION = "region"
#: The provider's zone, such as us-west4-a.
ZONE = "zone"
#: Whether the provider may take the host away at any time.
PREEMPTIBLE = "preemptible"
#: The kind of the host's accelerators: gpu, tpu, or cpu for none.
DEVICE_TYPE = "device-type"
#: The variant of the host's accelerators, such as h100 or v5litepod-16.
DEVICE_VARIANT = "device-variant"
#: The model of the host's GPUs, as the driver reports it, such as NVIDIA H100 80GB HBM3.
GPU_MODEL = "gpu-model"
#: The memory of each of the host's GPUs, rounded to GiB.
GPU_MEMORY = "gpu-memory-gib"
#: The TPU slice to which the host belongs.
TPU_NAME = "tpu-name"
#: The host's number in the TPU slice, from 0.
TPU_WORKER_ID = "tpu-worker-id"
#: How the chips of the host's TPU slice are connected, such as 4x4.
TPU_TOPOLOGY = "tpu-topology"
#: The number of hosts in the TPU slice to which the host belongs.
TPU_VM_COUNT = "tpu-vm-count"
#: The scale group that created the host.
SCALE_GROUP = "scale-group"
#: The host's own id, such as host:0.
HOST_ID = "host-id"


#: The name of the option `constraint` in error messages.
FIELD = "constraint"


class Operator(StrEnum):
    EQ = "EQ"
    NE = "NE"
    EXISTS = "EXISTS"
    NOT_EXISTS = "NOT_EXISTS"
    GT = "GT"
    GE = "GE"
    LT = "LT"
    LE = "LE"
    IN = "IN"


_SYMBOLS = {
    "==": Operator.EQ,
    "!=": Operator.NE,
    ">=": Operator.GE,
    "<=": Operator.LE,
    ">": Operator.GT,
    "<": Operator.LT,
    "=": Operator.EQ,
}
_WORDS = {"exists": Operator.EXISTS, "absent": Operator.NOT_EXISTS}
#: The text that stands for each operator in messages. If an operator has two symbols, messages show
#: the last one.
_SHOWN = {op: text for text, op in (_SYMBOLS | _WORDS | {"in": Operator.IN}).items()}
_WITHOUT_VALUE = frozenset({Operator.EXISTS, Operator.NOT_EXISTS})
_NUMERIC = frozenset({Operator.GT, Operator.GE, Operator.LT, Operator.LE})

_LISTS = frozenset({Operator.EQ, Operator.IN})
_LOWER = frozenset({Operator.GT, Operator.GE})
_UPPER = frozenset({Operator.LT, Operator.LE})

#: The limit on digits of an integer. A longer text of digits is a name and stays a string.
_MAX_DIGITS = 18
_INTEGER = re.compile(rf"[+-]?(?:0|[1-9][0-9]{{0,{_MAX_DIGITS - 1}}})")
_FLOAT = re.compile(
    r"[+-]?(?:(?:0|[1-9][0-9]*)?\.[0-9]+|(?:0|[1-9][0-9]*)(?=[eE]))(?:[eE][+-]?[0-9]{1,9})?"
)

_KEY = r"[a-zA-Z0-9][a-zA-Z0-9._/-]*"
_QUOTED = r'"(?:[^"\\]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"'
_PLAIN = r'[^\s,()"=<>!][^\s,()"]*'
_VALUE = rf"(?:{_QUOTED}|{_PLAIN})"
_VALUES = rf"{_VALUE}(?:\s*,\s*{_VALUE})*"
_PRESENCE = re.compile(rf"(?P<not>!\s*)?(?P<key>{_KEY})(?:\s+(?P<word>(?i:exists|absent)))?")
_COMPARISON = re.compile(
    rf"(?P<key>{_KEY})\s*(?P<symbol>{'|'.join(map(re.escape, _SYMBOLS))})\s*(?P<value>{_VALUE})"
)
_MEMBERSHIP = re.compile(
    rf"(?P<key>{_KEY})\s+(?i:in)(?:\s*\(\s*(?P<inside>{_VALUES})\s*\)|\s+(?P<bare>{_VALUES}))"
)
#: Matches `region=a,b`. This constraint is invalid, but its meaning is clear enough to suggest a
#: correction.
_SEVERAL = re.compile(rf"({_KEY})\s*==?\s*({_VALUE}\s*,\s*{_VALUES})")


class Constraint(Frozen):
    """A demand on one attribute of a host. All required constraints of a job must hold. Preferred
    constraints only rank the hosts.

    Raises:
        pydantic.ValidationError: wraps the `InvalidValue` of an invalid key, or of values that do
            not suit the operator.
    """

    key: str
    op: Operator = Operator.EQ
    values: tuple[Attribute, ...] = ()
    preferred: bool = False

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        _check(self.key, self.op, self.values)
        return self

    def holds(self, attributes: Mapping[str, Attribute]) -> bool:
        """Returns whether a host with these attributes meets the constraint. If the host lacks the
        attribute, only NOT_EXISTS holds; `zone != x` does not.
        """
        if self.key not in attributes:
            return self.op is Operator.NOT_EXISTS
        actual = attributes[self.key]
        match self.op:
            case Operator.EXISTS:
                return True
            case Operator.NOT_EXISTS:
                return False
            case Operator.EQ | Operator.IN:
                return _comparable(actual) in self._comparable_values
            case Operator.NE:
                return _comparable(actual) not in self._comparable_values
            case _:
                return _in_order(actual, self.op, self.values[0])

    @cached_property
    def _comparable_values(self) -> frozenset[tuple[type, Attribute]]:
        """The values as a set, so that a check of many hosts does not depend on the number of
        values.
        """
        return frozenset(map(_comparable, self.values))

    def _identity(self) -> tuple[object, ...]:
        return self.key, self.op, tuple(map(typed, self.values)), self.preferred

    def __eq__(self, other: object) -> bool:
        return (
            self._identity() == other._identity()
            if isinstance(other, Constraint)
            else NotImplemented
        )

    def __hash__(self) -> int:
        return hash(self._identity())

    def __str__(self) -> str:
        """Returns the text that `parse_constraint` parses to this constraint, without
        `preferred`.
        """
        shown = ", ".join(written(value) for value in self.values)
        if self.op is Operator.IN:
            shown = f"({shown})"
        return f"{self.key} {_SHOWN[self.op]} {shown}".rstrip()

    @property
    def marked(self) -> str:
        """The text that `parse_marked` parses to this constraint: with a question mark in front if
        it is only preferred.
        """
        return f"{'?' if self.preferred else ''}{self}"


def typed(value: Attribute) -> tuple[type, Attribute]:
    """Returns the value with its type, for comparisons and lookups: in Python, `True == 1
    == 1.0`.
    """
    return type(value), value


def same_attributes(one: Mapping[str, Attribute], other: Mapping[str, Attribute]) -> bool:
    """Returns whether both have the same keys with the same values of the same types."""
    return one.keys() == other.keys() and all(
        typed(value) == typed(other[key]) for key, value in one.items()
    )


def check_key(key: str, field: str) -> str:
    """Returns the key unchanged.

    Raises:
        InvalidValue: no host can have an attribute with this key.
    """
    if re.fullmatch(_KEY, key) is None:
        remedy = (
            "use letters, digits, dots, dashes, slashes or underscores, the first a letter or digit"
        )
        raise InvalidValue(field, key, "is not a valid attribute key", remedy)
    return key


def written(value: Attribute) -> str:
    """Returns the text that `parse_attribute` parses to this value. Only a string that would be
    parsed to another value gets quotes.
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str) and not (
        re.fullmatch(_PLAIN, value) and parse_attribute(value) == value
    ):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


def parse_attribute(text: str) -> Attribute:
    """Parses `true` and `false` to booleans, `4` and `0.5` to numbers, and all other texts to
    strings.

    `007`, a text of 19 digits and text in double quotes are strings, too.
    """
    text = text.strip()
    if re.fullmatch(_QUOTED, text):
        return str(json.loads(text, strict=False))
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text) and math.isfinite(number := float(text)):
        return number
    return text


def parse_constraint(text: str, *, preferred: bool = False) -> Constraint:
    """Parses `region=us-west4`, `zone != x`, `tpu-vm-count >= 4`, `region in (a, b)`, `gpu exists`
    or `!spot`.

    A value in double quotes is always a string. Values with spaces, commas or parentheses need
    quotes.

    Raises:
        InvalidValue: the text is not a constraint, or compares the size of a value that is not a
            number.
    """
    raw = text.strip()
    try:
        key, op, values = _read(raw)
    except ValueError:
        raise InvalidValue(FIELD, text, "is not a constraint", _remedy(raw)) from None
    _check(key, op, values)
    return Constraint(key=key, op=op, values=values, preferred=preferred)


def parse_marked(text: str) -> Constraint:
    """Parses the text of `Constraint.marked`.

    Raises:
        InvalidValue: as for `parse_constraint`.
    """
    return parse_constraint(text.removeprefix("?"), preferred=text.startswith("?"))


def region_constraint(regions: Sequence[str]) -> Constraint:
    """Returns the constraint that the host is in one of the regions.

    Raises:
        TypeError: `regions` is a single string, whose letters would be taken for regions.
        InvalidValue: there is no region, or an empty one.
    """
    if isinstance(regions, str):
        raise TypeError(f"regions is the string {regions!r}; pass a list of regions")
    names = tuple(dict.fromkeys(regions))
    if not names or not all(name.strip() for name in names):
        raise InvalidValue(
            "region", ", ".join(names), "names no region", "give at least one, such as us-west4"
        )
    return Constraint(key=REGION, op=Operator.IN if len(names) > 1 else Operator.EQ, values=names)


def zone_constraint(*zones: str) -> Constraint:
    """Returns the constraint that the host is in one of the zones.

    Raises:
        InvalidValue: there is no zone, or an empty one.
    """
    names = tuple(dict.fromkeys(zones))
    if not names or not all(name.strip() for name in names):
        raise InvalidValue(
            "zone", ", ".join(names), "names no zone", "give one, such as us-west4-a"
        )
    return Constraint(key=ZONE, op=Operator.IN if len(names) > 1 else Operator.EQ, values=names)


def avoiding(host_id: str) -> Constraint:
    """Returns the preference for all hosts except this one."""
    return Constraint(key=HOST_ID, op=Operator.NE, values=(host_id,), preferred=True)


def preemptible_constraint(preemptible: bool) -> Constraint:
    """Returns the constraint that the provider may, or may not, take the host away at any time."""
    return Constraint(key=PREEMPTIBLE, values=(preemptible,))


def contradiction(constraints: Iterable[Constraint]) -> tuple[Constraint, ...]:
    """Returns constraints on one attribute that exclude each other; empty if a host can meet all
    constraints.

    Preferred constraints do not count, because they exclude no host.
    """
    by_key: dict[str, list[Constraint]] = {}
    for constraint in constraints:
        if not constraint.preferred:
            by_key.setdefault(constraint.key, []).append(constraint)
    for group in by_key.values():
        if not _possible(group):
            # A pair that excludes each other tells the user best what to change. There usually is
            # one.
            pairs = ((one, other) for place, one in enumerate(group) for other in group[:place])
            return next(
                (tuple(reversed(pair)) for pair in pairs if not _possible(pair)), tuple(group)
            )
    return ()


def _check(key: str, op: Operator, values: tuple[Attribute, ...]) -> None:
    check_key(key, FIELD)
    if op in _WITHOUT_VALUE and values:
        raise InvalidValue(FIELD, key, f"has a value after {op}", f'write "{key} {_SHOWN[op]}"')
    if op is Operator.IN and not values:
        raise InvalidValue(
            FIELD,
            key,
            "has an empty list of values",
            f'give at least one, such as "{key} in (a, b)"',
        )
    if op not in _WITHOUT_VALUE | {Operator.IN} and len(values) != 1:
        raise InvalidValue(
            FIELD,
            key,
            f"has {len(values)} values for {op}",
            f'give one, such as "{key} {_SHOWN[op]} 4", or use "{key} in (a, b)"',
        )
    for value in values:
        if op in _NUMERIC and isinstance(value, str | bool):
            problem = f"compares by {_SHOWN[op]} with {written(value)}, which is not a number"
            raise InvalidValue(
                FIELD, key, problem, f'give a number, such as "{key} {_SHOWN[op]} 4"'
            )
        if isinstance(value, float) and not math.isfinite(value):
            problem = f"is compared with {value}, which is not a finite number"
            raise InvalidValue(FIELD, key, problem, "give a number such as 4")
        if isinstance(value, int) and abs(value) >= 10**_MAX_DIGITS:
            raise InvalidValue(
                FIELD,
                key,
                f"compares with a number of more than {_MAX_DIGITS} digits",
                "write it as text, in quotes",
            )


def _comparable(value: Attribute) -> tuple[type, Attribute]:
    """Returns a key that is equal for `1` and `1.0` and for `"A"` and `"a"`, but differs for `1`,
    `"1"` and `true`.
    """
    if isinstance(value, bool):
        return bool, value
    return (str, value.casefold()) if isinstance(value, str) else (float, value)


def _in_order(actual: Attribute, op: Operator, limit: Attribute) -> bool:
    if isinstance(actual, str | bool) or isinstance(limit, str | bool):
        return False
    match op:
        case Operator.GT:
            return actual > limit
        case Operator.GE:
            return actual >= limit
        case Operator.LT:
            return actual < limit
        case _:
            return actual <= limit


def _parse_value(text: str) -> Attribute:
    """Parses a value. Raises ValueError for half a surrogate pair: undecodable bytes of a command
    line produce it, and JSON cannot contain it.
    """
    value = parse_attribute(text)
    str(value).encode()
    return value


def _read(raw: str) -> tuple[str, Operator, tuple[Attribute, ...]]:
    """Parses a constraint. Raises ValueError if the text is not a constraint."""
    if match := _PRESENCE.fullmatch(raw):
        if match["not"] and match["word"]:
            raise ValueError("two negations")
        word = "absent" if match["not"] else (match["word"] or "exists")
        return match["key"], _WORDS[word.lower()], ()
    if match := _COMPARISON.fullmatch(raw):
        return match["key"], _SYMBOLS[match["symbol"]], (_parse_value(match["value"]),)
    if match := _MEMBERSHIP.fullmatch(raw):
        listed = match["inside"] or match["bare"]
        return (
            match["key"],
            Operator.IN,
            tuple(_parse_value(value) for value in re.findall(_VALUE, listed)),
        )
    raise ValueError("not a constraint")


def _remedy(raw: str) -> str:
    if match := _SEVERAL.fullmatch(raw):
        return f'for one of several values write "{match[1]} in ({match[2]})"'
    return (
        'write it like "region=us-west4", "zone != us-west4-a", "tpu-vm-count >= 4", "region in (a,'
        ' b)", "gpu exists" or "!spot"'
    )


def _possible(constraints: Sequence[Constraint]) -> bool:
    """Returns whether a host could meet all of these constraints on one attribute."""
    if any(each.op is Operator.NOT_EXISTS for each in constraints):
        return all(each.op is Operator.NOT_EXISTS for each in constraints)
    candidates = _candidates(constraints)
    if candidates is None:
        return True
    return any(all(each.holds({each.key: value}) for each in constraints) for value in candidates)


def _candidates(constraints: Sequence[Constraint]) -> Sequence[Attribute] | None:
    """Returns values to try: if any value meets all constraints, one of these does. Returns None if
    some value certainly does.
    """
    listed = next((each for each in constraints if each.op in _LISTS), None)
    if listed is not None:
        return listed.values
    lower, upper = (_limits(constraints, operators) for operators in (_LOWER, _UPPER))
    if not lower or not upper:
        return None  # numbers have no end, so some number is not excluded by `!=`
    if max(lower) < min(upper):
        return None
    return (max(lower),)


def _limits(constraints: Sequence[Constraint], operators: frozenset[Operator]) -> list[int | float]:
    return [
        value
        for each in constraints
        if each.op in operators
        for value in each.values
        if isinstance(value, int | float)
    ]
