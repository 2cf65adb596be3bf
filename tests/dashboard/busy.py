"""A cluster in which something runs, waits, is held, has failed and is closed."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
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


#: The name of the published report, and its configurations. One is named to be escaped.
SIMULATION = "one-more"
CONFIGURATIONS = {"<old>.yaml": 1, "new.yaml": 2}


def publish_a_simulation(cluster: Cluster) -> str:
    """Publishes a report that compares two configurations, and writes it to `report` as well.
    Returns what the command says about it.
    """
    folder = folder_of_simulation(cluster)
    folder.mkdir(exist_ok=True)
    for file, most in CONFIGURATIONS.items():
        group = f"{{type: local_vm, accelerator_variant: v5litepod-16, max_slices: {most}}}"
        (folder / file).write_text(f"platform: {{local: {{}}}}\nscale_groups: {{v5e: {group}}}\n")
    before, after = CONFIGURATIONS
    files = ("--against", before, "--config", after, "--out", "report")
    jobs = "jobs=9,days=0.5,tpu=v5litepod-16,duration=1h..4h"
    asked = (*files, "--synthetic", jobs, "--publish", SIMULATION)
    return cluster.iris("simulate", *asked, cwd=folder).err


def folder_of_simulation(cluster: Cluster) -> Path:
    return cluster.home / "what-if"


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
        publish_a_simulation(cluster)
        eventually(lambda: cluster.status("runs")["state"] == "RUNNING")
        objects = {
            "job": f"{USER}/runs",
            "host": host,
            "simulation": SIMULATION,
            "slice": cluster.iris("slice", "list", "--json").json[0]["id"],
        }
        location = cluster.iris("cluster", "status", "--json").json
        yield Busy(cluster, location["dashboard"], objects)
