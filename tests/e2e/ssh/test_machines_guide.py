"""`docs/machines.md` is run, like the guide to scheduling; its files (`yaml` blocks that begin with
a name) are there first.
"""

import re
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster, a_home
from tests.e2e.jobs.test_scheduling_guide import type_in

pytestmark = pytest.mark.long

GUIDE = Path(__file__).parents[3] / "docs" / "machines.md"


def files(document: str) -> dict[str, str]:
    """The text of every block that is a file, by its name."""
    return dict(re.findall(r"```yaml\n# (\S+)\n(.*?)```", document, re.DOTALL))


def test_the_guide_to_machines_does_what_it_says() -> None:
    """Whoever types it in sees what it shows."""
    with a_home() as home:
        cluster = Cluster(home)
        try:
            document = GUIDE.read_text()
            for name, text in files(document).items():
                cluster.file(name).write_text(text)
            type_in(cluster, GUIDE)
            assert cluster.processes() == []
        finally:
            cluster.iris("cluster", "stop", "guide", "--yes", code=None)
            cluster.clear()
