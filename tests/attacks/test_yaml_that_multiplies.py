"""A few lines of YAML stand for billions of values, by aliases and merge keys, and whoever reads
them waits for ever.
"""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from iris.cli.submit.read_file import read_jobs
from iris.config import load_config
from iris.config.edit_hosts import add_hosts
from iris.model.errors import IrisError

ROOT = Path(__file__).parents[2]


def _levels(first: str, line: str, last: str) -> str:
    """Eight lines, each of which has the one before it ten times."""
    lines = [
        first.format("a0"),
        *(line.format(f"a{n}", ", ".join([f"*a{n - 1}"] * 10)) for n in range(1, 9)),
    ]
    return "\n".join([*lines, last])


MERGED = _levels("{0}: &{0} {{x: 1}}", "{0}: &{0} {{<<: [{1}]}}", "platform: {local: {}}")
REPEATED = _levels("{0}: &{0} [x]", "{0}: &{0} [{1}]", "platform: *a8")
AS_KEYS = _levels("{0}: &{0} {{x: 1}}", "{0}: &{0} {{? [{1}] : 1}}", "platform: {local: {}}")
ITSELF = "platform: &a {local: *a}"
MERGED_INTO_ITSELF = "platform: &a\n  <<: *a\n  local: {}"

READERS: dict[str, Callable[[str], object]] = {
    "configuration": load_config,
    "job file": lambda text: read_jobs(text.encode(), "job.yaml", {}),
    "second document of a job file": lambda text: read_jobs(
        f"command: [true]\n---\n{text}".encode(), "job.yaml", {}
    ),
    "list of machines": lambda text: add_hosts(text, "machines", ["10.0.0.1"]),
}


@pytest.mark.parametrize("text", [MERGED, REPEATED, AS_KEYS], ids=["merged", "repeated", "as keys"])
@pytest.mark.parametrize("reader", READERS)
def test_values_that_multiply_are_refused_with_their_line(reader: str, text: str) -> None:
    """The file may come from a colleague, an example or a pull request, and checking it must not
    take the machine.
    """
    with pytest.raises(
        IrisError,
        match=r"line \d+, column \d+: aliases and merge keys repeat more than 100,000 values",
    ):
        READERS[reader](text)


@pytest.mark.parametrize("text", [ITSELF, MERGED_INTO_ITSELF])
@pytest.mark.parametrize("reader", READERS)
def test_a_value_that_contains_itself_is_refused_with_its_line(reader: str, text: str) -> None:
    """It has no end."""
    with pytest.raises(
        IrisError, match=r"line \d+, column 1[01]: the value contains an alias of itself"
    ):
        READERS[reader](text)


def test_a_large_cluster_may_repeat_its_settings() -> None:
    """A bound on an attack must not meet a user."""
    labels = "&labels {team: a, rack: b}"
    first = (
        "  first: &all {type: local_vm, max_slices: 2, resources: {cpu: 1, memory: 1g},"
        f" attributes: {labels}}}\n"
    )
    groups = "".join(
        f"  group-{number}: {{<<: *all, attributes: *labels}}\n" for number in range(500)
    )
    loaded = load_config(f"platform: {{local: {{}}}}\nscale_groups:\n{first}{groups}")
    assert len(loaded.scale_groups) == 501
    assert loaded.scale_groups["group-499"].attributes == {"team": "a", "rack": "b"}


def test_every_yaml_is_read_with_the_bound() -> None:
    """The next reader is as easy to attack as the first one."""
    unbounded = re.compile(
        r"yaml\.(\w*[sS]afeLoader|safe_load\w*|(full|unsafe)_load\w*|\w*Loader)\b"
    )
    folders = ("iris", "workflows", "activities", "platforms", "worker_agents", "scripts")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    found = [str(path.relative_to(ROOT)) for path in files if unbounded.search(path.read_text())]
    assert found == ["iris/config/bounded_yaml.py"]
