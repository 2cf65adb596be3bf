"""Deaths of agents in the middle of everything they do, with programs of every kind."""

import random
import signal
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import docker
import psutil
import pytest

from iris.model import names
from tests.e2e.cluster import Cluster, a_cluster, eventually
from tests.e2e.fleet.test_adoption import WORK, attempt_dirs
from tests.images import docker_image

pytestmark = pytest.mark.docker

#: Four hosts, whose containers and processes find each other's files in one directory.
CONFIG = """
platform: {{local: {{}}}}
bootstrap: {{mounts: ["{shared}"]}}
scale_groups:
  cpu: {{type: local_vm, min_slices: 4, max_slices: 4, resources: {{cpu: 4, memory: 8g, disk: 8g}}}}
"""


def programs(cluster: Cluster) -> list[str]:
    """What runs of any attempt."""
    found = []
    for process in cluster.processes():
        with suppress(psutil.NoSuchProcess):
            if names.ENV_ATTEMPT_KEY in process.environ():
                found.append(str(process))
    return found


def test_twenty_deaths_of_agents_cost_no_task_anything(tmp_path: Path) -> None:
    """20 tasks on four hosts, processes and containers, with and without set-up, whose agents are
    killed at 20 random moments, others in each run: every task ends with its true result, none ran
    twice at once, no line is missing or twice, and nothing is left behind.
    """
    seed = random.randrange(10**6)
    dice = random.Random(seed)
    codes = [0, 0, 0, 3, -signal.SIGSEGV]
    image = docker_image()
    shared, config = tmp_path / "shared", tmp_path / "config.yaml"
    shared.mkdir()
    config.write_text(CONFIG.format(shared=shared))
    with a_cluster("--config", str(config), "--ephemeral") as cluster:
        expected = {}
        for number in range(20):
            name, lines, code = f"t{number}", dice.randrange(1, 60), dice.choice(codes)
            expected[name] = (lines, code)
            work = [
                "python3",
                "-c",
                WORK,
                name,
                str(lines),
                str(round(dice.uniform(0.01, 0.7), 2)),
                str(code),
            ]
            options = ["--setup", "sleep 1"] if number % 4 == 0 else []
            options += ["--image", image] if number % 5 == 0 else []
            cluster.submit(name, "--workdir", str(shared), *options, "--", *work)
        deaths = 0
        while deaths < 20:
            time.sleep(dice.uniform(0, 3))  # a moment, whichever: that is what is tested
            # None is there, or it was gone before: another moment, then.
            with suppress(IndexError, psutil.NoSuchProcess):
                dice.choice(cluster.processes_with("agent")).kill()
                deaths += 1
        cluster.iris("wait", *expected, code=None, within=300)
        for name, (lines, code) in expected.items():
            (task,) = cluster.status(name)["tasks"]
            runs = (shared / f"{name}.runs").read_text().splitlines()
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
        assert not list(shared.glob("overlap-*")), f"seed {seed}"
        eventually(lambda: attempt_dirs(cluster) == [])
        assert programs(cluster) == [], f"seed {seed}"
        hosts = list(cluster.hosts())
        engine = docker.from_env()
        ours = [
            each
            for each in engine.containers.list(all=True)
            if each.labels.get("iris.host") in hosts
        ]
        engine.close()
        assert ours == [], f"seed {seed}"
        eventually(lambda: cluster.free_cpu() == [4] * 4, within=120)
