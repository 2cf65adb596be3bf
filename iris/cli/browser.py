"""Opens a page for the user."""

import os
import sys
import webbrowser

import click


def open_page(page: str, *, only_print: bool) -> None:
    """Prints the address of a page, and opens it if this session has a browser."""
    click.echo(page)
    if not only_print and _has_browser():
        webbrowser.open(page)


def _has_browser() -> bool:
    """Returns whether a browser would open on the user's screen.

    It does in a graphical session, unless the user has logged in from another machine.
    """
    graphical = sys.platform == "darwin" or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")
    )
    return graphical and "SSH_CONNECTION" not in os.environ
