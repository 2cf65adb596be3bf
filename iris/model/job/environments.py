"""What a job's program runs in: the environment that the host sets up before the program starts,
the container image, and the ports.
"""

import re
from datetime import timedelta
from pathlib import PurePosixPath
from typing import Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from iris.model import names
from iris.model.errors import InvalidValue
from iris.model.frozen import Frozen
from iris.model.units import MAX_DURATION, parse_duration

#: The default time limit of a set-up. It is long enough to compile large packages, and ends a step
#: that hangs.
SETUP_TIMEOUT = timedelta(minutes=30)


_DIGEST = re.compile(r"@sha256:[0-9a-f]{64}\Z")


class EnvironmentSpec(Frozen):
    """The steps that set up an environment, in this order: the bundle's project, extra packages,
    the user's own commands.

    Raises:
        pydantic.ValidationError: wraps the `InvalidValue` of an invalid field.
    """

    #: Whether Iris installs the packages that the bundle declares: with `uv sync` if its
    #: `pyproject.toml` has a `[project]` table; otherwise the packages in `requirements.txt`;
    #: otherwise the packages that `setup.py` or `setup.cfg` builds.
    sync: bool = True
    #: The directory of the project in the bundle. The program starts there, too. Empty means the
    #: bundle's top directory.
    project: str = ""
    #: The names of the project's optional dependencies to install.
    extras: tuple[str, ...] = ()
    #: The extra packages to install, as pip writes requirements: `numpy`, `jax[tpu]>=0.5` or a file
    #: of them, `-r FILE`.
    pip: tuple[str, ...] = ()
    #: The minor version of Python for the environment, such as `3.12`. If it is empty, uv chooses.
    #: A function needs the version that pickled it; the client sets that version.
    python: str = ""
    #: Environment variables for the set-up only. They give build backends the project's version,
    #: which they would read from git, because a bundle has no `.git`.
    build_env: dict[str, str] = Field(default_factory=dict)
    #: Shell commands that run one after the other in the program's directory, with its environment.
    setup: tuple[str, ...] = ()
    #: The time limit for all steps of the set-up together. In a gang, it is also the longest time
    #: that the host that is ready first waits for the host that is ready last.
    setup_timeout: timedelta = SETUP_TIMEOUT

    @field_validator("extras", "pip", "setup", mode="before")
    @classmethod
    def _are_several(cls, given: object, info: ValidationInfo) -> object:
        if isinstance(given, str):
            raise InvalidValue(
                str(info.field_name),
                given,
                "is one text, not a list",
                f"write {info.field_name}=[{given!r}]",
            )
        return given

    @field_validator("extras")
    @classmethod
    def _are_extras(cls, extras: tuple[str, ...]) -> tuple[str, ...]:
        for extra in extras:
            if re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", extra) is None:
                raise InvalidValue(
                    "extra",
                    extra,
                    "is not a valid name of an extra",
                    "use letters, digits, dots, dashes or underscores",
                )
        return extras

    @field_validator("pip")
    @classmethod
    def _are_requirements(cls, pip: tuple[str, ...]) -> tuple[str, ...]:
        for requirement in pip:
            is_option = (
                requirement.lstrip().startswith("-") and requirements_file(requirement) is None
            )
            if not requirement.strip() or is_option or "\0" in requirement:
                raise InvalidValue(
                    "pip",
                    requirement,
                    "is not a requirement",
                    "write a package such as numpy or 'jax>=0.5', or -r FILE",
                )
        return pip

    @field_validator("project")
    @classmethod
    def _is_a_directory_of_the_bundle(cls, project: str) -> str:
        path = PurePosixPath(project)
        if path.is_absolute() or ".." in path.parts or "\0" in project:
            raise InvalidValue(
                "project",
                project,
                "is not a path in a workspace",
                "write a path relative to the workspace",
            )
        return "" if path == PurePosixPath() else str(path)

    @field_validator("python")
    @classmethod
    def _is_a_minor_version(cls, python: str) -> str:
        if python and re.fullmatch(r"3\.\d{1,3}", python) is None:
            raise InvalidValue(
                "python", python, "is not a minor version of Python", "write one such as 3.12"
            )
        return python

    @field_validator("setup")
    @classmethod
    def _are_commands(cls, setup: tuple[str, ...]) -> tuple[str, ...]:
        for command in setup:
            if not command.strip() or "\0" in command:
                raise InvalidValue("setup", command, "is not a command", "write a shell command")
        return setup

    @field_validator("setup_timeout", mode="before")
    @classmethod
    def _may_be_a_text(cls, time: object) -> object:
        return (
            parse_duration(time, "setup-timeout")
            if isinstance(time, str) and not time.startswith("P")
            else time
        )

    @field_validator("setup_timeout")
    @classmethod
    def _is_a_time_to_wait(cls, time: timedelta) -> timedelta:
        if not timedelta(0) < time <= MAX_DURATION:
            raise InvalidValue(
                "setup-timeout",
                f"{time.total_seconds():g}s",
                "is not a time limit",
                "give a duration such as 2h",
            )
        return time

    @model_validator(mode="after")
    def _has_a_project_for_its_extras(self) -> Self:
        if self.extras and not self.sync:
            raise InvalidValue(
                "extra",
                ", ".join(self.extras),
                "can be installed only with the project",
                "remove --no-sync",
            )
        return self


def requirements_file(requirement: str) -> str | None:
    """Returns the path in a requirement of the form `-r FILE`, or None for all other forms."""
    match = re.fullmatch(r"\s*(?:-r\s*|--requirements?(?:\s+|=))([^\s-].*?)\s*", requirement)
    return None if match is None else match[1]


def has_digest(image: str) -> bool:
    """Returns whether the image is named by its digest. A tag can be moved to another image."""
    return _DIGEST.search(image) is not None


def check_image(image: str) -> str:
    """Returns the name unchanged.

    Raises:
        InvalidValue: the text is not a name of a container image.
    """
    if not image or image.startswith("-") or not image.isprintable() or " " in image:
        raise InvalidValue(
            "image",
            image,
            "is not a valid name of a container image",
            "write NAME[:TAG], such as python:3.11",
        )
    return image


def check_ports(ports: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the names unchanged.

    Raises:
        InvalidValue: a name is invalid, or two ports would have the same environment variable.
    """
    for port in ports:
        if re.fullmatch("[a-zA-Z][a-zA-Z0-9_-]{0,30}", port) is None:
            raise InvalidValue(
                "port",
                port,
                "is not a valid name of a port",
                "use letters, digits, - or _, such as metrics",
            )
    if len({names.env_port(port) for port in ports}) < len(ports):
        raise InvalidValue(
            "port",
            ", ".join(ports),
            "would give two ports the same environment variable",
            "choose names that differ by more than case, - and _",
        )
    return ports
