"""Implements `iris version`."""

from importlib.metadata import version

import click


@click.command("version")
def show_version() -> None:
    """Show the version of Iris."""
    click.echo(f"iris, version {version('iris-temporal')}")
