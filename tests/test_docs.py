"""The documents keep their promises: links resolve, commands and options that they name exist."""

import html
import inspect
import re
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from urllib.parse import urlsplit

import click
import pytest

import iris
from iris.cli.main import cli
from iris.model import errors
from iris.model.host.hosts import ClosedBy
from iris.model.job import errors as job_errors
from iris.model.slice.provisioning import SliceFault
from iris.model.slice.scaling import Availability
from iris.model.states import JobState, TaskState
from iris.scheduling.placement.refusals import RefusalCode

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_to_a_file_resolves(document: Path) -> None:
    """A newcomer follows them in order; a dead one ends the tour."""
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", document.read_text()):
        if "://" not in target:
            assert (document.parent / target).exists(), f"{document.name} links to {target}"


def _first_local_start(document: Path) -> int:
    """Where a reader begins with a cluster on this machine and submits to it; -1: nowhere."""
    typed = re.compile(r"^\$ (\.venv/bin/)?iris (cluster start --local|submit)", re.MULTILINE)
    found = list(typed.finditer(document.read_text()))
    local = bool(found) and found[0][2] != "submit" and any(each[2] == "submit" for each in found)
    return found[0].start() if local else -1


@pytest.mark.parametrize(
    "document",
    [each for each in DOCUMENTS if _first_local_start(each) >= 0],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_a_guide_begins_in_an_empty_directory(document: Path) -> None:
    """In the checkout of Iris, the first submit would send a thousand files and install what they
    need.
    """
    assert "egin in an empty directory" in document.read_text()[: _first_local_start(document)]


@pytest.mark.parametrize(
    "name",
    [
        "README.md",
        "docs/index.md",
        "docs/how-to/tpu-gang.md",
        "docs/how-to/spot.md",
        "docs/how-to/why-waiting.md",
        "docs/how-to/quotas.md",
        "docs/how-to/what-if.md",
        "docs/how-to/sweep.md",
        "docs/how-to/own-machines.md",
        "docs/how-to/google-cloud.md",
        "docs/arrays.md",
        "docs/reference/by-task.md",
        "docs/coming-from.md",
        "docs/scheduling.md",
        "docs/machines.md",
        "docs/configuration.md",
        "docs/tasks.md",
        "docs/gcp.md",
        "docs/usage.md",
    ],
)
def test_every_command_and_option_in_what_users_read_exists(name: str) -> None:
    """What is tried first has to work. An option must be one of the command before it, or, alone,
    one of any command.
    """
    text = (ROOT / name).read_text().replace("\\\n", " ")
    # The left column has the commands and options of other systems.
    if name == "docs/coming-from.md":
        text = "\n".join(
            row.split(" | ", 1)[1] for row in text.splitlines() if row.startswith("| ")
        )
    check_commands(name, text)


def check_commands(name: str, text: str) -> None:
    """Asserts that every command of `iris` in a text exists with the options that it has there."""
    lines = re.findall(r"iris ((?:[a-z]+ ?)+(?:[^`\n|]*))", text)
    assert lines
    for line in lines:
        words = line.split(" -- ")[0].replace(",", " ").split()
        command: click.Command = cli
        context = click.Context(cli)
        while words and isinstance(command, click.Group):
            found = command.get_command(context, words[0])
            if found is None:
                break
            command, words = found, words[1:]
        if command is cli:
            continue  # prose
        assert not (isinstance(command, click.Group) and words), f"{name} names iris {line}"
        known = options(command) | options(cli)
        for word in words:
            option = re.match(r"\[?(--?[a-z][a-z-]*)", word)
            short = [f"-{letter}" for letter in option[1][1:]] if option else []  # `-it` is `-i -t`
            assert option is None or option[1] in known or set(short) <= known, (
                f"{name} names {option[1]} for {command.name}"
            )
    for option in re.findall(r"`(--[a-z][a-z-]*)", text):
        assert option in EVERY_OPTION, f"{name} names {option}"


def test_the_recording_shows_commands_that_exist_and_needs_no_network() -> None:
    """It is the first thing that a visitor sees, and a picture from another host would be missing
    or outdated.
    """
    picture = (ROOT / "docs" / "pictures" / "demo.svg").read_text()
    rows: dict[str, str] = {}
    for row, text in re.findall(
        r'<text [^>]*clip-path="url\(#iris-line-(\d+)\)">(.*?)</text>', picture
    ):
        rows[row] = rows.get(row, "") + html.unescape(text).replace("\xa0", " ")
    typed = [row.removeprefix("$").lstrip() for row in rows.values() if row.startswith("$")]

    assert typed
    check_commands("docs/pictures/demo.svg", "\n".join(typed))
    addresses = {
        urlsplit(address).hostname for address in re.findall(r"https?://[^\s&<\"]+", picture)
    }
    assert addresses <= {"127.0.0.1", "www.w3.org"}


def test_the_python_reference_has_every_public_name() -> None:
    """It is generated from docstrings, but only for the names on the page."""
    page = (ROOT / "docs" / "reference" / "python.md").read_text()

    assert set(re.findall(r"^::: iris\.(\w+)$", page, re.MULTILINE)) == set(iris.__all__)


def rows_under(heading: str) -> list[list[str]]:
    """The cells of the table under a heading of the page about reasons."""
    section = (
        (ROOT / "docs" / "reference" / "reasons.md")
        .read_text()
        .split(f"\n## {heading}\n")[1]
        .split("\n## ")[0]
    )
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in section.splitlines()
        if line.startswith("| `")
    ]


@pytest.mark.parametrize(
    ("heading", "codes"),
    [
        ("A job waits", RefusalCode),
        ("The state of a job", JobState),
        ("The state of a task", TaskState),
        ("A host accepts no work", ClosedBy),
        ("A slice was not created, or was lost", SliceFault),
        ("A scale group creates no slices", Availability),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_every_reason_is_described_with_a_remedy(heading: str, codes: type[StrEnum]) -> None:
    """A user searches for the code that is shown. A code that Iris no longer gives would only
    mislead.
    """
    rows = rows_under(heading)

    assert [row[0].strip("`") for row in rows] == list(codes)
    assert all(len(row) == 3 and all(row) for row in rows)


def test_every_error_is_described_with_its_exit_code_and_a_remedy() -> None:
    """Scripts act on the exit code, and Python on the type."""
    rows = rows_under("A command fails")
    types = {
        each
        for module in (errors, job_errors)
        for _, each in inspect.getmembers(module, inspect.isclass)
        if issubclass(each, errors.IrisError)
    }

    assert {row[0].strip("`"): int(row[1]) for row in rows} == {
        each.__name__: each.exit_code for each in types
    }
    assert all(len(row) == 4 and all(row) for row in rows)


def options(command: click.Command) -> set[str]:
    return {
        option
        for parameter in command.params
        for option in (*parameter.opts, *parameter.secondary_opts)
    } | {"--help"}


def every_command(group: click.Group) -> Iterator[click.Command]:
    """All commands under a group, and the group."""
    context = click.Context(group)
    yield group
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield from every_command(command) if isinstance(command, click.Group) else [command]


EVERY_OPTION = {option for command in every_command(cli) for option in options(command)}
