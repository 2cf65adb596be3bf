"""The database goes back in time, as `docs/production.md` restores it: hosts ran programs that the
history does not know.
"""

import signal
from pathlib import Path

import psutil
import pytest

from tests.e2e.cluster import USER, eventually, until
from tests.e2e.operate.production import OwnCluster, an_own_cluster
from tests.temporal_cluster import a_temporal_cluster

pytestmark = pytest.mark.production


class Programs:
    """Jobs of one core whose programs tell in files what happens to them."""

    def __init__(self, cluster: OwnCluster) -> None:
        self._cluster = cluster

    def submit(self, name: str, memory: str = "2g") -> None:
        """Submits a job that runs until `let_end`. Its file `NAME.twice` shows that two of its
        programs ran at once.
        """
        here = self._cluster.file(name)
        steps = (
            f"exec 9>> {here}.lock",
            f"flock --nonblock 9 || touch {here}.twice",
            f"echo >> {here}.begun",
            until(f"{here}.go"),
        )
        needs = ("--cpu", "1", "--memory", memory)
        self._cluster.submit(name, *needs, "--", "sh", "-c", "; ".join(steps))

    def begun(self, name: str, times: int = 1) -> None:
        """Waits until the program has begun so many times."""
        file = Path(f"{self._cluster.file(name)}.begun")
        eventually(lambda: file.exists() and len(file.read_text()) == times, every=0.2)

    def let_end(self, name: str) -> None:
        """Lets the program end, and waits for the job's success."""
        Path(f"{self._cluster.file(name)}.go").touch()
        self._cluster.iris("wait", name)

    def running(self) -> list[psutil.Process]:
        return self._cluster.processes_with("sh", "-c")

    def twice(self) -> list[str]:
        return [path.name for path in self._cluster.work.glob("*.twice")]


def test_a_cluster_goes_on_after_its_database_went_back() -> None:
    """What the backup has runs again or waits on, what it lacks is gone, and nothing runs twice at
    once.

    The second host has no room for the jobs of the backup. Both agents share this machine, and the
    first agent kills every process on its machine that an attempt of the lost history has left.
    """
    with (
        a_temporal_cluster(servers=2) as temporal,
        an_own_cluster(temporal.service.addresses, "own") as cluster,
    ):
        programs = Programs(cluster)
        cluster.join("first", "--cpu", "2", "--memory", "4g")
        for name in ("running", "ends-later"):
            programs.submit(name)
            programs.begun(name)
        programs.submit("waiting")
        eventually(lambda: cluster.status("waiting")["tasks"][0]["state"] == "PENDING")
        dumps = temporal.dump()

        programs.let_end("ends-later")
        programs.begun("waiting")
        cluster.join("second", "--cpu", "2", "--memory", "1g")
        programs.submit("unknown", memory="1g")
        programs.begun("unknown")

        cluster.kill("controller", "serve")
        for server in ("server-0", "server-1"):
            temporal.end(server, signal.SIGKILL)
        eventually(lambda: not programs.running(), every=0.5)  # the lease is over
        temporal.restore(dumps)
        for number in range(2):
            temporal.start_server(number)
        cluster.start()

        for name in ("running", "waiting"):
            programs.begun(name, times=2)
        jobs = {each["id"]: each["state"] for each in cluster.iris("jobs", "--all", "--json").json}
        assert set(jobs) == {f"{USER}/{name}" for name in ("running", "ends-later", "waiting")}
        eventually(lambda: set(cluster.host_ids()) == {"first", "second"}, every=0.5)
        for name in ("running", "waiting", "ends-later"):
            programs.let_end(name)
        said = cluster.iris("submit", "-n", "unknown", "--", "echo", "another job of the name")
        assert said.out == "another job of the name\n"
        eventually(lambda: cluster.free_cpu() == [2, 2], every=0.5)
        assert programs.twice() == []
