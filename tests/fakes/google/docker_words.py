"""Parses the command line of `docker run`: the container, and its paths on the host."""

import os
import re
import time
from dataclasses import dataclass, field
from pathlib import Path

#: Options of `run` without a value.
_FLAGS = frozenset(
    {
        "-d",
        "--detach",
        "--rm",
        "--privileged",
        "--init",
        "-i",
        "-t",
        "-it",
        "-q",
        "--quiet",
        "--read-only",
    }
)


@dataclass
class Container:
    """What `docker run` said."""

    name: str
    image: str
    command: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    #: (path here, path in the container)
    mounts: list[tuple[str, str]] = field(default_factory=list)
    restart: str = "no"
    options: dict[str, list[str]] = field(default_factory=dict)
    status: str = "created"
    exit_code: int = 0
    restarts: int = 0
    #: Nobody wants it to run.
    stopped: bool = False


class Refused(Exception):
    """The command fails with this code and these words."""

    def __init__(self, words: str, code: int = 1) -> None:
        super().__init__(words)
        self.code = code


def parse_run(arguments: list[str]) -> tuple[Container, bool, bool]:
    """(what is to run, whether beside, whether it is removed at its end) of the arguments after
    `run`.

    Raises:
        Refused: they make no sense.
    """
    options: dict[str, list[str]] = {}
    rest = list(arguments)
    while rest and rest[0].startswith("-"):
        name, given, value = rest.pop(0).partition("=")
        if name in _FLAGS:
            options.setdefault(name, []).append(value or "true")
        elif not given and not name.startswith("--") and len(name) > 2:
            options.setdefault(name[:2], []).append(name[2:])  # -eK=V
        elif given and not name.startswith("--") and len(name) > 2:
            options.setdefault(name[:2], []).append(f"{name[2:]}={value}")
        else:
            if not given and not rest:
                raise Refused(f"flag needs an argument: {name}", 125)
            options.setdefault(name, []).append(value if given else rest.pop(0))
    if not rest:
        raise Refused('"docker run" requires at least 1 argument.', 125)

    def all_of(*names: str) -> list[str]:
        return [value for name in names for value in options.get(name, [])]

    environment: dict[str, str] = {}
    for file in all_of("--env-file"):
        lines = (
            line
            for line in Path(file).read_text().splitlines()
            if "=" in line and not line.startswith("#")
        )
        environment |= dict(line.split("=", 1) for line in lines)
    for each in all_of("-e", "--env"):
        name, given, value = each.partition("=")
        environment[name] = value if given else os.environ.get(name, "")
    mounts = [
        (parts[0], parts[1])
        for each in all_of("-v", "--volume")
        if len(parts := each.split(":")) > 1
    ]
    for each in all_of("--mount"):
        named = dict(part.partition("=")[::2] for part in each.split(","))
        mounts.append(
            (named.get("source", named.get("src", "")), named.get("target", named.get("dst", "")))
        )
    image, *command = rest
    container = Container(
        name=(all_of("--name") or [f"container-{time.monotonic_ns()}"])[-1],
        image=image,
        command=[*all_of("--entrypoint")[-1:], *command],
        environment=environment,
        mounts=[each for each in mounts if each[0].startswith("/")],
        restart=(all_of("--restart") or ["no"])[-1],
        options=options,
    )
    return container, bool(all_of("-d", "--detach")), bool(all_of("--rm"))


def on_host(text: str, mounts: list[tuple[str, str]]) -> str:
    """The text with the container's paths as those of the host: at its beginning, and after `=` and
    `:`.
    """
    for here, inside in sorted(mounts, key=lambda each: -len(each[1])):
        if here == inside:
            continue
        pattern = rf"(^|[=:,]|file://){re.escape(inside.rstrip('/'))}(?=$|[/:,])"
        changed = re.sub(pattern, rf"\1{_literal(here.rstrip('/'))}", text)
        if changed != text:
            return changed
    return text


def _literal(text: str) -> str:
    """As the replacement of a pattern."""
    return text.replace("\\", r"\\")
