"""Errors about options of a job: options that exclude each other, and fields that are not valid."""

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from iris.model.errors import InvalidJob, InvalidValue

#: The names of Python options by names that users may try instead: the fields of `JobSpec`, or the
#: options of the original Iris.
OTHER_NAMES = {
    "coscheduling": "gang_by",
    "env_vars": "env",
    "max_retries": "retries",
    "max_retries_failure": "retries",
    "num_tasks": "replicas",
    "secrets": "secret",
    "limit": "limits",
    "tag": "tags",
}


class OptionConflict(InvalidValue):
    """Raised if an option excludes another option, or needs an option that is missing.

    The message names the options as a Python program does.

    Attributes:
        usage: the same message with the names that the options have on a command line.
    """

    def __init__(self, option: str, value: object, problem: str, remedy: str, usage: str) -> None:
        super().__init__(option, value, problem, remedy)
        self.usage = usage


def excludes(option: str, value: object, other: str, why: str) -> OptionConflict:
    """Returns the error about two options that exclude each other."""
    return OptionConflict(
        option,
        value,
        f"does not go with {other}: {why}",
        "leave one of them out",
        f"{_flag(option)} and {_flag(other)} exclude each other: {why}",
    )


def needs(option: str, value: object, other: str, what: str) -> OptionConflict:
    """Returns the error about an option that needs another one.

    Args:
        what: the value that the other option has to give.
    """
    return OptionConflict(
        option,
        value,
        f"needs {other} with {what}",
        f"give {other}, too",
        f"{_flag(option)} needs {_flag(other)} with {what}",
    )


def invalid_job(error: ValidationError) -> InvalidJob:
    """Returns the error for users: a sentence for each field that is wrong, with the name that the
    field has as an option.
    """
    problems = [_sentence(problem) for problem in error.errors()]
    return InvalidJob("; ".join(problems), problems)


def _sentence(problem: ErrorDetails) -> str:
    found = problem.get("ctx", {}).get("error")
    if found is None:  # pydantic's own check, whose text is "Input should be …"
        field, remedy = ".".join(str(part) for part in problem["loc"]), problem["msg"]
        found = InvalidValue(
            field, problem["input"], "is not valid", remedy[:1].lower() + remedy[1:]
        )
    field, colon, rest = str(found).partition(":")
    return f"{OTHER_NAMES.get(field, field)}{colon}{rest}"


def _flag(option: str) -> str:
    return f"--{option.replace('_', '-')}"
