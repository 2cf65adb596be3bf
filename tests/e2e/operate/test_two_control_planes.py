"""Two control planes of one cluster, on two servers of Temporal: each may die at any time, and all
parts may be replaced in turn.
"""

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from iris.workflows import policies
from tests.e2e.cluster import Running, eventually, until
from tests.e2e.operate.production import OwnCluster, an_own_cluster
from tests.temporal_cluster import TemporalCluster, a_temporal_cluster

pytestmark = pytest.mark.production

#: What a machine offers.
OFFER = ("--cpu", "5", "--memory", "4g")
#: The tasks of each job of the load. Four run at a time.
TASKS = 8
#: The seconds from the death of one control plane until a new job runs if the dead process is
#: started again at once, as a supervisor does: less than the time limit of a workflow task of a
#: planner, for which the service waits if the process died in one.
SOON = policies.PLANNER_TASK.total_seconds() - 3


@pytest.fixture(scope="module")
def temporal() -> Iterator[TemporalCluster]:
    with a_temporal_cluster(servers=2) as running:
        yield running


class Pair:
    """A cluster with two control planes, each of which is connected to a server of its own."""

    def __init__(self, cluster: OwnCluster) -> None:
        self.cluster = cluster
        self._controls = [self._serving(number) for number in range(2)]
        self._jobs: list[str] = []

    def _serving(self, number: int) -> Running:
        control = self.cluster.serve(server=number)
        eventually(lambda: "serves" in control.err + control.out, every=0.2)
        return control

    def load(self) -> str:
        """Starts a job whose tasks each take a moment, and waits until one runs. At most one
        earlier job still runs: on a slow machine, the queue would grow from load to load.
        """
        if len(self._jobs) > 1:
            self.cluster.iris("wait", self._jobs[-2])
        name = f"load-{len(self._jobs)}"
        runs = self.cluster.file(name)
        program = f"echo $IRIS_TASK_INDEX >> {runs}; sleep 0.5"
        self.cluster.submit(name, "--replicas", str(TASKS), "--cpu", "1", "--", "sh", "-c", program)
        self._jobs.append(name)
        self.cluster.there_is(name)
        return name

    def kill(self, number: int) -> None:
        self._controls[number].process.kill()
        self._controls[number].process.wait()

    def start(self, number: int) -> None:
        self._controls[number] = self.cluster.serve(server=number)

    def replace(self, number: int) -> None:
        """Ends a control plane as an upgrade does, and waits until the next one serves."""
        self._controls[number].process.send_signal(signal.SIGTERM)
        assert self._controls[number].process.wait() == 0
        self._controls[number] = self._serving(number)

    def seconds_to_decision(self, name: str) -> float:
        """How long it takes from now until a new job runs, which goes before the load."""
        began = time.monotonic()
        place = ("--cpu", "0.1", "--priority", "production")
        self.cluster.submit(name, *place, "--", "touch", str(self.cluster.file(name)))
        self.cluster.there_is(name)
        return time.monotonic() - began

    def check_load(self) -> None:
        """Every task of every job ran once."""
        self.cluster.iris("wait", *self._jobs)
        for name in self._jobs:
            runs = Counter(self.cluster.lines(name))
            assert runs == Counter(str(index) for index in range(TASKS)), name
            tasks = self.cluster.status(name)["tasks"]
            again = [task["index"] for task in tasks if task["attempt"] != 1]
            shown = (self.cluster.iris("status", f"{name}:{index}").out for index in again)
            assert not again, "\n".join(shown)


@contextmanager
def a_pair(temporal: TemporalCluster, name: str) -> Iterator[Pair]:
    with an_own_cluster(temporal.service.addresses, name) as cluster:
        cluster.kill("controller")
        yield Pair(cluster)


def test_jobs_go_on_while_two_control_planes_die_in_turn(temporal: TemporalCluster) -> None:
    """Each is killed three times under a running load and started again at once."""
    with a_pair(temporal, "turns") as pair:
        pair.cluster.join("host", *OFFER)
        taken = []
        for turn in range(6):
            pair.load()
            pair.kill(turn % 2)
            pair.start(turn % 2)
            taken.append(pair.seconds_to_decision(f"turn-{turn}"))
        pair.check_load()
        assert max(taken) < SOON, taken


@pytest.mark.parametrize("number", [0, 1])
def test_jobs_go_on_without_one_of_two_control_planes(
    temporal: TemporalCluster, number: int
) -> None:
    """Its machine is gone, and nobody starts it again."""
    with a_pair(temporal, f"without-{number}") as pair:
        pair.cluster.join("host", *OFFER)
        pair.load()
        pair.kill(number)
        pair.seconds_to_decision("decided")
        pair.load()
        pair.check_load()


def test_an_upgrade_of_every_part_in_turn_costs_no_job_an_attempt(
    temporal: TemporalCluster,
) -> None:
    """Servers, control planes and agents, while a gang runs through and other jobs come and go."""
    with a_pair(temporal, "upgrade") as pair:
        cluster, hosts = pair.cluster, ("old-w-0", "old-w-1")
        agents = {host: cluster.join(host, *OFFER) for host in hosts}
        go, begun = cluster.file("go"), cluster.file("begun")
        through = f"echo $IRIS_TASK_INDEX >> {begun}; {until(str(go))}; echo end"
        spread = ("--replicas", "2", "--cpu", "3")
        cluster.submit("through", *spread, "--", "sh", "-c", through)
        eventually(lambda: len(cluster.lines("begun")) == 2)

        for number in range(2):
            pair.load()
            temporal.end(f"server-{number}", signal.SIGTERM)
            temporal.start_server(number)
            asyncio.run(temporal.becomes_ready(number))
        for number in range(2):
            pair.load()
            pair.replace(number)
        for host in hosts:
            pair.load()
            agents[host].process.send_signal(signal.SIGHUP)
            agents[host].process.wait()
            agents[host] = cluster.join(host, *OFFER)

        go.touch()
        cluster.iris("wait", "through")
        pair.check_load()
        assert sorted(cluster.lines("begun")) == ["0", "1"]
        assert [task["attempt"] for task in cluster.status("through")["tasks"]] == [1, 1]
        assert sorted(cluster.logs("through")) == ["[0] end", "[1] end"]
