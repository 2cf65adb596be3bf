"""`docs/tasks.md` is run, like the other guides, in a directory with the files that it shows."""

import re
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster, a_home
from tests.e2e.jobs.test_scheduling_guide import type_in

pytestmark = pytest.mark.long

GUIDE = Path(__file__).parents[3] / "docs" / "tasks.md"


def test_the_guide_to_hosts_does_what_it_says() -> None:
    """Whoever types it in sees what it shows."""
    with a_home() as home:
        cluster = Cluster(home)
        try:
            document = GUIDE.read_text()
            for name, text in re.findall(
                r"```(?:toml|python|yaml|text)\n# (\S+)\n(.*?)```", document, re.DOTALL
            ):
                cluster.file(name).write_text(text)
            type_in(cluster, GUIDE)
            assert cluster.processes() == []
        finally:
            cluster.iris("cluster", "stop", "guide", "--yes", code=None)
            cluster.clear()
