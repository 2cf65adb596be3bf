"""Prints JSON on standard output, and messages and questions on standard error."""

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click


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
