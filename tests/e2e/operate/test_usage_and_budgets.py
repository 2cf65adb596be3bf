"""Who used a cluster, what it cost, and a budget that is used up: as users and operators see it."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cluster import USER, Cluster, a_cluster, a_home, eventually, until

pytestmark = pytest.mark.long

CONFIG = f"""
name: paid
platform: {{local: {{}}}}
prices:
  currency: EUR
  rates: [{{group: cpus, machine_hour: 3600}}]
teams: {{vision: [{USER}]}}
scale_groups:
  cpus: {{type: local_vm, min_slices: 1, max_slices: 1, resources: {{cpu: 4, memory: 16g}}}}
"""
BUDGET = "budgets: {small: {team: vision, amount: 0.01, per: month, action: hold}}\n"


def a_config(directory: Path, text: str) -> str:
    file = directory / f"cluster-{len([*directory.iterdir()])}.yaml"
    file.write_text(text)
    return str(file)


@pytest.fixture
def home() -> Iterator[Path]:
    with a_home() as directory:
        yield directory


@pytest.fixture
def cluster(home: Path) -> Iterator[Cluster]:
    with a_cluster("--config", a_config(home, CONFIG), "--ephemeral", name="paid") as running:
        yield running


def usage(cluster: Cluster, *options: str) -> Any:
    return cluster.iris("usage", "--json", *options).json


def test_use_is_paid_shown_and_limited(cluster: Cluster, home: Path) -> None:
    """A host costs a euro for a second: an attempt on half of it for a second costs half of one."""
    # 1. What runs counts already, with the part of the host that it holds.
    cluster.submit("runs", "--cpu", "2", "--tag", "project=p", "--", "sh", "-c", until("go"))
    eventually(lambda: [row["cost"] for row in usage(cluster)["rows"]])
    report = usage(cluster, "--by", "team", "--by", "tag:project")
    (row,) = report["rows"]
    assert row["by"] == {"team": "vision", "tag:project": "p"}
    assert row["cost"] == pytest.approx(row["host_hours"] * 3600)
    assert row["core_hours"] == pytest.approx(row["host_hours"] * 4)
    unused = [each for each in report["waste"] if each["kind"] in ("idle", "boot", "never ready")]
    costs = [row["cost"], *(each["cost"] or 0.0 for each in unused)]
    assert sum(costs) == pytest.approx(report["slices"]["cost"], rel=0.01)
    (line,) = csv.DictReader(io.StringIO(cluster.iris("usage", "--by", "user", "--csv").out))
    assert (line["user"], line["currency"], line["attempts"]) == (USER, "EUR", "1")
    assert "COST EUR" in cluster.iris("usage").out

    # 2. What a job costs at most is known before it runs.
    asked = ("--cpu", "1", "--timeout", "10s", "--json", "--", "true")
    estimate = cluster.iris("submit", "--dry-run", *asked).json["estimate"]
    assert (estimate["on_demand"], estimate["currency"]) == (pytest.approx(2.5), "EUR")
    assert cluster.iris("submit", "-n", "dated", *asked).json["estimate"] == estimate

    # 3. Nobody is held without a budget; with one that is used up, new jobs are.
    cluster.iris("wait", "dated")
    cluster.iris("cluster", "reload", "--config", a_config(home, CONFIG + BUDGET))
    eventually(lambda: any(use["exceeded_at"] for use in usage(cluster)["budgets"]))
    for job in ("new", "mine"):
        warned = cluster.iris("submit", "-n", job, "-d", "--timeout", "1h", "--", "true").err
        assert "budget small is used up: team vision" in warned
        eventually(lambda job=job: cluster.status(job)["state"] == "HELD")
    assert cluster.status("new")["reason"].startswith("held by budget small: team vision has used")
    cluster.iris("hold", "mine", "--reason", "own")
    assert cluster.status("runs")["state"] == "RUNNING"

    # 4. The jobs are released when the budget is gone, and those of users are not.
    cluster.iris("cluster", "reload", "--config", a_config(home, CONFIG))
    cluster.iris("wait", "new")
    assert cluster.status("mine")["reason"] == f"held by {USER}: own"
    cluster.file("go").touch()
    cluster.iris("wait", "runs")

    # 5. What was used is a workload: the same jobs on two hosts, by team and with money.
    more = a_config(home, CONFIG.replace("max_slices: 1", "max_slices: 2"))
    options = ("--config", more, "--last", "1h", "--json")

    def simulated() -> Any:
        (found,) = cluster.iris("simulate", *options).json["configurations"]
        return found["answers"][0]

    eventually(lambda: simulated()["all"]["gangs"] == 3)
    found = simulated()
    assert found["users"][USER] == found["teams"]["vision"]
    assert found["users"][USER]["cost"] > 0
    assert (found["currency"], found["all"]["failed"], found["all"]["unended"]) == ("EUR", 0, 0)
