"""The documents keep their promises: links resolve, commands and options that they name exist."""

import re
from pathlib import Path

import click
import pytest

from iris.cli.main import cli

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_to_a_file_resolves(document: Path) -> None:
    """A newcomer follows them in order; a dead one ends the tour."""
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", document.read_text()):
        if "://" not in target:
            assert (document.parent / target).exists(), f"{document.name} links to {target}"


def test_every_command_and_option_in_the_readme_exists() -> None:
    """The README is the first thing that is tried."""
    text = (ROOT / "README.md").read_text()
    for line in re.findall(r"iris ((?:[a-z]+ ?)+(?:[^`\n|]*))", text):
        words = line.split(" -- ")[0].split()
        command: click.Command = cli
        context = click.Context(cli)
        while words and isinstance(command, click.Group):
            found = command.get_command(context, words[0])
            if found is None:
                break
            command, words = found, words[1:]
        if command is cli:
            continue
        known = {option for parameter in [*command.params, *cli.params] for option in parameter.opts} | {"--help"}
        for word in words:
            option = re.match(r"\[?(--?[a-z][a-z-]*)", word)
            assert option is None or option[1] in known, f"README names {option[1]} for {command.name}"
