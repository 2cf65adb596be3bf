"""Fifty deaths of agents in the middle of everything they do, with programs of every kind."""

import random
import signal
import time
from collections import Counter
from contextlib import suppress

import docker
import psutil
import pytest

from iris import names
from tests.e2e.cluster import Cluster, a_cluster, eventually
from tests.e2e.test_adoption import WORK, attempt_dirs
from tests.images import docker_image

pytestmark = pytest.mark.docker


def programs(cluster: Cluster) -> list[str]:
    """What runs of any attempt."""
    found = []
    for process in cluster.processes():
        with suppress(psutil.NoSuchProcess):
            if names.ENV_ATTEMPT_KEY in process.environ():
                found.append(str(process))
    return found


def test_fifty_deaths_of_agents_cost_no_task_anything() -> None:
    """40 tasks on four hosts, processes and containers, with and without set-up, whose agents are killed at 50 random moments:
    every task ends with its true result, none ran twice at once, no line is missing or twice, and nothing is left behind."""
    seed = random.randrange(10**6)
    dice = random.Random(seed)
    codes = [0, 0, 0, 3, -signal.SIGSEGV]
    image = docker_image()
    with a_cluster("--cpu", "4", "--hosts", "4", "--ephemeral") as cluster:
        expected = {}
        for number in range(40):
            name, lines, code = f"t{number}", dice.randrange(1, 60), dice.choice(codes)
            expected[name] = (lines, code)
            work = ["python3", "-c", WORK, name, str(lines), str(round(dice.uniform(0.01, 0.7), 2)), str(code)]
            options = ["--setup", "sleep 1"] if number % 4 == 0 else []
            options += ["--image", image] if number % 5 == 0 else []
            cluster.submit(name, *options, "--", *work)
        deaths = 0
        while deaths < 50:
            time.sleep(dice.uniform(0, 3))  # a moment, whichever: that is what is tested
            with suppress(IndexError, psutil.NoSuchProcess):  # none is there, or it was gone before: another moment, then
                dice.choice(cluster.processes_with("agent")).kill()
                deaths += 1
        cluster.iris("wait", *expected, code=None, within=300)
        for name, (lines, code) in expected.items():
            (task,) = cluster.status(name)["tasks"]
            runs = cluster.lines(f"{name}.runs")
            context = f"seed {seed}, {name}: {task}, {runs}"
            assert task["exit_code"] == (code if code >= 0 else 128 - code), context
            assert task["state"] == ("SUCCEEDED" if code == 0 else "FAILED"), context
            assert runs[-2:] == [f"begin {task['attempt']}", f"end {task['attempt']}"], context
            assert Counter(runs).most_common(1)[0][1] == 1, context
            last = cluster.logs(name, "--attempt", str(task["attempt"]), "--stream", "stdout")
            assert last == [f"{name} {task['attempt']} {line}" for line in range(lines)], context
            fetched = cluster.home / "fetched" / name
            cluster.iris("fetch", name, "-o", str(fetched))
            assert (fetched / "result").read_text() == name, context
        assert not list(cluster.work.glob("overlap-*")), f"seed {seed}"
        eventually(lambda: attempt_dirs(cluster) == [], within=60)
        assert programs(cluster) == [], f"seed {seed}"
        hosts = list(cluster.hosts())
        engine = docker.from_env()
        ours = [each for each in engine.containers.list(all=True) if each.labels.get("iris.host") in hosts]
        engine.close()
        assert ours == [], f"seed {seed}"
        eventually(lambda: cluster.free_cpu() == [4] * 4, within=120)
