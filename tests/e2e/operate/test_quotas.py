"""Quotas and named limits of a cluster, as users see them."""

from pathlib import Path

import pytest

from tests.e2e.cluster import USER, Cluster, a_cluster, a_home, eventually, until

pytestmark = pytest.mark.long

CONFIG = f"""
name: shared
platform: {{local: {{}}}}
teams: {{vision: [{USER}]}}
quotas:
  vision: {{team: vision, cpus: 2}}
limits: {{licence: 1}}
scale_groups:
  cpus: {{type: local_vm, min_slices: 1, max_slices: 4, resources: {{cpu: 4, memory: 16g}}}}
"""


def test_a_quota_stops_a_job_says_why_and_changes_without_a_restart() -> None:
    """Hosts are free all the time, and the autoscaler could buy more. It must not."""
    with a_home() as home:
        file = Path(home) / "shared.yaml"
        file.write_text(CONFIG)
        with a_cluster("--config", str(file), "--ephemeral", name="shared") as cluster:
            # 1. A job runs, and the next one would exceed the quota of the team.
            cluster.submit("runs", "--cpu", "2", "--", "sh", "-c", until("go"))
            eventually(lambda: cluster.status("runs")["state"] == "RUNNING")
            eventually(lambda: slices(cluster) == 1)  # the autoscaler knows its slice
            cluster.submit("waits", "--cpu", "1", "--limit", "licence", "--", "true")
            eventually(lambda: cluster.iris("explain", "waits", "--json").json["code"] == "QUOTA")
            (stop,) = cluster.iris("explain", "waits", "--json").json["quotas"]
            assert (stop["holder"], stop["resource"]) == ("team vision", "cpus")
            assert (stop["used"], stop["needed"], stop["users"]) == (2000, 1000, {USER: 2000})

            # 2. The list shows it, and a question before the submission, too.
            rows = {row["resource"]: row for row in cluster.iris("quota", "list", "--json").json}
            quota = rows["cpus"]
            assert (quota["used"], quota["nominal"], quota["waiting"]) == (2.0, 2.0, 1)
            assert (rows["limits.licence"]["used"], rows["limits.licence"]["nominal"]) == (0, 1)
            asked = cluster.iris("submit", "--dry-run", "--cpu", "1", "--json", "--", "true")
            assert asked.json["refusal"]["code"] == "QUOTA"
            misspelt = ("--limit", "license", "--", "true")
            assert "license" in cluster.iris("submit", "--dry-run", *misspelt, code=5).out

            # 3. No slice was bought for it. A larger quota lets it start at once.
            assert slices(cluster) == 1
            file.write_text(CONFIG.replace("cpus: 2", "cpus: 3"))
            cluster.iris("cluster", "reload", "--config", str(file))
            cluster.iris("wait", "waits")
            cluster.file("go").touch()
            cluster.iris("wait", "runs")


def slices(cluster: Cluster) -> int:
    """The number of slices that the autoscaler has."""
    (group,) = cluster.iris("group", "list", "--json").json
    return sum(group["slices"].values())
