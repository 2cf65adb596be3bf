"""`docs/scheduling.md` is run: every `console` block in order, on the cluster that its first block
starts.

A line that begins with `$ ` is a command, and the lines below it are its output, standard error
included. There `…` stands for anything within a line, and alone on a line for any lines; runs of
spaces are one, and empty lines do not count. A comment (`# …`) before a command is for the reader.
The slices of a group have other ids than in the guide, in the same order.
"""

import re
import shlex
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.e2e.cluster import Cluster, a_home

pytestmark = pytest.mark.long

#: A slice of a local cluster without a file, or a host of one.
SLICE = re.compile(r"(local-[a-z0-9-]+?)-[0-9a-f]{8}\b")
GUIDE = Path(__file__).parents[3] / "docs" / "scheduling.md"
#: For one command.
PATIENCE = 120.0
#: They change nothing: asked again until what has been begun is there. Who reads a guide is not
#: that quick.
LOOKS = (
    *(
        "status",
        "explain",
        "logs",
        "jobs",
        "host list",
        "cluster status",
        "slice list",
        "slice show",
        "autoscaler status",
    ),
    "fetch train --checkpoint --list",
)


class Step(NamedTuple):
    """A command of the guide and the lines that it prints."""

    #: Of the command, in the document.
    line: int
    command: str
    output: tuple[str, ...]


def steps(document: str) -> list[Step]:
    """Every command of every block."""
    found: list[Step] = []
    inside = continued = False
    for number, line in enumerate(document.splitlines(), start=1):
        if line.startswith("```"):
            inside = not inside and line == "```console"
        elif not inside:
            continue
        elif continued:
            found[-1] = found[-1]._replace(
                command=f"{found[-1].command.removesuffix(chr(92))}{line.strip()}"
            )
        elif line.startswith("$ "):
            found.append(Step(number, line.removeprefix("$ "), ()))
        elif not line.startswith("# "):
            found[-1] = found[-1]._replace(output=(*found[-1].output, line))
        continued = inside and bool(found) and line.endswith("\\")
    return found


#: A state of the job that is followed, if it lasts so long that it is told.
LASTING = re.compile(r"\d\d:\d\d:\d\d \S+ is (PENDING|BUILDING|RUNNING)\b")


def prints(output: str, expected: tuple[str, ...]) -> bool:
    """Whether the output is what the guide shows. On a busy machine, more states last."""
    lines = [" ".join(line.split()) for line in expected if line.strip()]
    pattern = "".join(
        "(?:.*\n)*" if line == "…" else f"{'.*'.join(map(re.escape, line.split('…')))}\n"
        for line in lines
    )
    printed = "".join(
        f"{' '.join(line.split())}\n"
        for line in output.splitlines()
        if line.strip() and not LASTING.match(line)
    )
    return re.fullmatch(pattern, printed) is not None


SAMPLE = """
```console
# The first:
$ iris submit \\
      -n a -- true
ada/a
$ iris explain 'a b'
```
```python
$ iris nonsense
```
"""


def test_states_that_last_on_a_busy_machine_are_no_difference_and_other_lines_are() -> None:
    """Else a page's test would depend on the speed of the machine, or hold nothing."""
    shown = ("submitted ada/a", "ada/a SUCCEEDED after …")
    first, *_, last = lines = (
        "submitted ada/a",
        "17:59:10 ada/a is RUNNING",
        "ada/a SUCCEEDED after 1s",
    )
    assert prints("\n".join(lines), shown)
    assert not prints("\n".join((first, "error: no", last)), shown)


def test_the_reader_of_the_guide_finds_its_commands_and_no_others() -> None:
    """Else a block that is not run would pass."""
    first, second = steps(SAMPLE)
    assert (first.line, shlex.split(first.command), first.output) == (
        4,
        ["iris", "submit", "-n", "a", "--", "true"],
        ("ada/a",),
    )
    assert (second.line, second.command, second.output) == (7, "iris explain 'a b'", ())


@pytest.mark.parametrize(
    ("output", "expected", "same"),
    [
        ("a   b\n\nc\n", "a b\nc", True),
        ("a b\nc\n", "a b", False),
        ("a b\n", "a b\nc", False),
        ("ready: here\nmore\nlines\n", "ready: …\n…", True),
        ("ready: here\nmore\nlines\nlast\n", "ready: …\n…\nlast", True),
        ("ready: here\nmore\n", "ready: …", False),
        ("x and 7 more (by ada)\n", "… and 7 more (by ada)", True),
        ("x and 8 more\n", "… and 7 more", False),
        ("", "", True),
        ("error\n", "", False),
    ],
)
def test_what_a_command_prints_is_held_against_the_guide_line_by_line(
    output: str, expected: str, same: bool
) -> None:
    """What is left out has to be marked."""
    assert prints(output, tuple(expected.splitlines())) is same


def slices_in(text: str) -> dict[str, list[str]]:
    """The ids of slices in a text, by group and in order."""
    found: dict[str, set[str]] = {}
    for slice_id in SLICE.finditer(text):
        found.setdefault(slice_id[1], set()).add(slice_id[0])
    return {group: sorted(ids) for group, ids in found.items()}


def names(document: str, cluster: Cluster) -> dict[str, str]:
    """The ids of the slices that the guide shows, and those that they stand for."""
    there = slices_in(" ".join(cluster.slices()))
    return {
        shown: real
        for group, ids in slices_in(document).items()
        for shown, real in zip(ids, there[group], strict=True)
    }


def replaced(text: str, by: Mapping[str, str]) -> str:
    for old, new in by.items():
        text = text.replace(old, new)
    return text


def ask(
    cluster: Cluster,
    step: Step,
    stands_for: Mapping[str, str] | None = None,
    patience: float = PATIENCE,
) -> str:
    """What the command prints, once that is what the guide shows.

    Args:
        stands_for: what the names in the guide are here.
        patience: in seconds.
    """
    stands_for = stands_for or {}
    shown = {real: name for name, real in stands_for.items()}
    program, *arguments = shlex.split(replaced(step.command, stands_for))
    assert program == "iris", f"line {step.line}: what is {program}?"
    deadline = time.monotonic() + patience
    again = " ".join(arguments).startswith(LOOKS)
    while True:
        printed = replaced(
            cluster.begin(*arguments, merged=True).ends(code=None, within=patience).out, shown
        )
        if prints(printed, step.output) or not again or time.monotonic() > deadline:
            return printed


def type_in(cluster: Cluster, guide: Path, patience: float = PATIENCE) -> None:
    """Every command of a guide, each of which has to print what the guide shows.

    Args:
        patience: for each command, in seconds.
    """
    document = guide.read_text()
    stands_for: dict[str, str] = {}
    for step in steps(document):
        printed = ask(cluster, step, stands_for, patience)
        if not stands_for and slices_in(document):
            stands_for = names(document, cluster)
        shown = "\n".join(step.output)
        assert prints(printed, step.output), (
            f"{guide.name}:{step.line}\n$ {step.command}\n--- the guide shows\n{shown}\n--- it"
            f" prints\n{printed}"
        )


def test_the_guide_to_scheduling_does_what_it_says() -> None:
    """Whoever types it in sees what it shows."""
    with a_home() as home:
        cluster = Cluster(home)
        try:
            type_in(cluster, GUIDE)
            assert cluster.processes() == []
        finally:
            cluster.iris("cluster", "stop", "--yes", code=None)
            cluster.clear()
