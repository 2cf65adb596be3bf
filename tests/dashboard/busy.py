"""A cluster in which something runs, waits, is held, has failed and is closed."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from tests.e2e.cluster import USER, Cluster, a_cluster, eventually

#: A command that would be a script, if a page did not escape it, and that would turn the text after
#: it around.
NASTY = "echo '<script>document.title=1</script>' \u202e \x1b[31m"


class Busy(NamedTuple):
    """A cluster, and objects of it that pages can show."""

    cluster: Cluster
    dashboard: str
    #: A value for each parameter in the path of a page.
    objects: dict[str, str]

    def path(self, pattern: str) -> str:
        """Returns the path of a page with the objects of this cluster in it."""
        missing = set(re.findall(r"{(\w+)", pattern)) - self.objects.keys()
        assert not missing, f"tests.dashboard.busy has no value for {missing} of {pattern}"
        return re.sub(r"{(\w+)(?::\w+)?}", lambda found: self.objects[found[1]], pattern)


@contextmanager
def busy_cluster() -> Iterator[Busy]:
    options = ("--tpu", "v5litepod-16", "--slices", "1", "--hosts", "2", "--cpu", "4")
    with a_cluster(*options, "--ephemeral", "--allow-actions", name="dash") as cluster:
        cluster.submit("runs", "--tag", "team=vision", "--", "sh", "-c", "echo begun; sleep 900")
        cluster.submit("array", "--replicas", "4", "--cpu", "0.1", "--", "sleep", "900")
        cluster.submit("works", "--", "true")
        cluster.submit("fails", "--", "sh", "-c", "echo what went wrong >&2; exit 3")
        cluster.submit("nasty", "--", "sh", "-c", NASTY)
        cluster.submit("waits", "--cpu", "4", "--replicas", "3", "--", "sleep", "900")
        cluster.submit("held", "--cpu", "4", "--replicas", "9", "--", "sleep", "900")
        cluster.iris("hold", "held")
        host = cluster.host_ids()[-1]
        cluster.iris("host", "cordon", host, "--reason", "its fan is loud")
        for job in ("works", "fails", "nasty"):
            cluster.iris("wait", job, code=None)
        eventually(lambda: cluster.status("runs")["state"] == "RUNNING")
        objects = {
            "job": f"{USER}/runs",
            "host": host,
            "slice": cluster.iris("slice", "list", "--json").json[0]["id"],
        }
        location = cluster.iris("cluster", "status", "--json").json
        yield Busy(cluster, location["dashboard"], objects)
