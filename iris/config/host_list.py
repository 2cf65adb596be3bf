"""Parses machines as users type them: `[USER@]HOST[:PORT]`, with ranges such as `gpu[1-4]`."""

import re
from collections.abc import Iterable
from itertools import chain

from pydantic import TypeAdapter

from iris.config.texts import Address
from iris.model.errors import InvalidValue
from iris.model.frozen import Frozen

#: The limit on machines in a list. A range such as `[1-99999]` is a mistake.
MAX_MACHINES = 1_000
_ADDRESS = TypeAdapter[str](Address)
_RANGES = re.compile(r"\[([0-9,-]*)\]")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_PLACE = re.compile(r"(?:(?P<user>[^@\s]+)@)?(?P<address>[^@:\s]+)(?::(?P<port>[0-9]{1,5}))?")


class Login(Frozen):
    """A machine, and the user and the port with which Iris logs in over SSH."""

    address: str
    user: str
    port: int = 22


def parse_hosts(texts: Iterable[str], user: str) -> tuple[Login, ...]:
    """Returns the machines without repetitions, in the order of the texts.

    Args:
        user: the login user for texts that name none.

    Raises:
        InvalidValue: a text is not a machine, two texts name one machine with different logins, or
            there are too many.
    """
    found: dict[str, Login] = {}
    for text in texts:
        for name in _expanded(text):
            login = _login(name, user)
            before = found.setdefault(login.address, login)
            if before != login:
                problem = f"is listed as {before.user}@{before.address}:{before.port} already"
                raise InvalidValue("HOST", name, problem, "list each machine once")
        if len(found) > MAX_MACHINES:
            raise InvalidValue(
                "HOST", text, f"makes more than {MAX_MACHINES} machines", "correct the range"
            )
    return tuple(found.values())


def _expanded(text: str) -> list[str]:
    """Returns the texts that a text with ranges stands for. The numbers of `[01-12]` have two
    digits.
    """
    names = [""]
    for position, part in enumerate(_RANGES.split(text)):
        choices = (
            [part]
            if position % 2 == 0
            else list(chain.from_iterable(_numbers(each, text) for each in part.split(",")))
        )
        if len(names) * len(choices) > MAX_MACHINES:
            raise InvalidValue(
                "HOST", text, f"makes more than {MAX_MACHINES} machines", "correct the range"
            )
        names = [name + choice for name in names for choice in choices]
    return names


def _numbers(part: str, text: str) -> list[str]:
    match = _RANGE.fullmatch(part)
    if match is None or int(match[2] or match[1]) < int(match[1]):
        raise InvalidValue(
            "HOST",
            text,
            f"has the range {part!r}, which is not NUMBER or FIRST-LAST in ascending order",
            "write a range such as gpu[1-4] or gpu[1,3-5], with at most 9 digits in a number",
        )
    first, last = int(match[1]), int(match[2] or match[1])
    if last - first >= MAX_MACHINES:
        raise InvalidValue(
            "HOST", text, f"makes more than {MAX_MACHINES} machines", "correct the range"
        )
    return [str(number).zfill(len(match[1])) for number in range(first, last + 1)]


def _login(name: str, user: str) -> Login:
    match = _PLACE.fullmatch(name)
    port = int(match["port"] or 22) if match else 0
    if match is None or not 1 <= port <= 65535:
        raise InvalidValue("HOST", name, "is not a machine", "write [USER@]HOST[:PORT]")
    try:
        address = _ADDRESS.validate_python(match["address"])
    except ValueError:
        raise InvalidValue("HOST", name, "is not a machine", "write [USER@]HOST[:PORT]") from None
    return Login(address=address, user=match["user"] or user, port=port)
