"""Prints JSON on standard output, and messages and questions on standard error."""

import errno
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from iris.client.connect.paths import state_dir
from iris.model.errors import IrisError
from iris.storage.files import is_full

#: The extra of the package `iris` that installs each library. The key is the first part of the
#: library's import name.
EXTRAS = {"google": "gcp", "asyncssh": "ssh"}


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2))


def show_progress(text: str) -> None:
    """Prints a progress message."""
    click.echo(text, err=True)


def show_warnings(texts: Iterable[str]) -> None:
    """Prints each warning once."""
    for text in dict.fromkeys(texts):
        click.echo(f"warning: {text}", err=True)


def raise_first(errors: Sequence[BaseException]) -> None:
    """Prints all errors but the first, and raises the first, which determines the exit code."""
    for extra in errors[1:]:
        click.echo(f"error: {extra}", err=True)
    if errors:
        raise errors[0]


def confirm(question: str, details: Callable[[], None] = lambda: None) -> None:
    """Asks the user a yes-or-no question.

    Args:
        details: prints what the question is about; called only on a terminal.

    Raises:
        click.UsageError: there is no terminal to ask on.
        click.Abort: the user answered no.
    """
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} There is no terminal to confirm on; add --yes.")
    details()
    click.confirm(question, abort=True, err=True)


def explain(error: BaseException, *, as_json: bool) -> int:
    """Prints the message of an error, and returns the exit code."""
    code = error.exit_code if isinstance(error, IrisError) else 1
    message = str(error) if isinstance(error, IrisError) else _message_of(error)
    if as_json:
        click.echo(
            json.dumps({"error": type(error).__name__, "message": message, "exit_code": code}),
            err=True,
        )
    else:
        click.echo(f"error: {message}", err=True)
    return code


def _message_of(error: BaseException) -> str:
    """Returns the message, and the remedy if there is one, of an error that is no `IrisError`."""
    if isinstance(error, ImportError):
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        if extra is not None:
            return (
                f"this needs {error.name}, which is not installed; install it with: pip install"
                f" 'iris-temporal[{extra}]'"
            )
    if isinstance(error, OSError) and error.filename is not None:
        remedy = (
            "; to keep the state of Iris elsewhere, set IRIS_STATE_DIR"
            if _is_of_state_directory(error)
            else ""
        )
        return f"{error.filename}: {error.strerror}{remedy}"
    if isinstance(error, OSError) and is_full(error):
        return f"the output cannot be written: {error.strerror}"
    if isinstance(error, FileNotFoundError) and _directory_is_gone():
        return "the current directory was deleted; change to another one"
    return f"{type(error).__name__}: {error} (--debug shows where)"


def _is_of_state_directory(error: OSError) -> bool:
    """Returns whether the error says that the state directory cannot be created or written."""
    state, path = state_dir(), Path(str(error.filename))
    if error.errno in (errno.ENOENT, errno.ENOTDIR):  # a missing file in it has another cause
        return path in (state, *state.parents)
    return error.errno in (errno.EACCES, errno.EPERM, errno.EROFS) and (
        path in state.parents or state in (path, *path.parents)
    )


def _directory_is_gone() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False
