"""Set-ups that cannot reach a server: what every list says, and who has the host meanwhile."""

import pytest

from tests.e2e.cluster import Cluster, a_cluster, eventually

pytestmark = pytest.mark.long

#: Nothing listens there.
GONE = ("-e", "UV_INDEX_URL=http://127.0.0.1:9/simple", "-e", "UV_HTTP_RETRIES=0")


def listed(cluster: Cluster, job: str) -> tuple[str, str]:
    """The state and the reason of a job in a list."""
    (row,) = [row for row in cluster.iris("jobs", "--json").json if row["id"].endswith(f"/{job}")]
    return row["state"], row["reason"]


def test_a_job_whose_package_index_is_gone_is_building_or_pending_with_the_reason_and_its_host_is_free_between() -> (
    None
):
    """It was RUNNING without a reason, for hours."""
    with a_cluster("--cpu", "1", "--ephemeral") as cluster:
        cluster.submit("pip", "--cpu", "1", "--no-workspace", "--pip", "six", *GONE, "--", "true")
        said = "`uv pip install six` could not reach a server"
        eventually(
            lambda: listed(cluster, "pip")[0] == "BUILDING" and said in listed(cluster, "pip")[1]
        )
        shown = cluster.iris("status", "pip").out
        assert shown.startswith("ada/pip  BUILDING  ") or shown.startswith("ada/pip  PENDING  ")
        assert said in shown
        eventually(
            lambda: listed(cluster, "pip")[0] == "PENDING" and said in listed(cluster, "pip")[1]
        )
        assert (
            cluster.iris(
                "submit", "--cpu", "1", "--no-workspace", "-n", "other", "--", "echo", "ran"
            ).out
            == "ran\n"
        )
        eventually(
            lambda: (
                listed(cluster, "pip")[0] == "BUILDING" and "attempt 2" in listed(cluster, "pip")[1]
            )
        )
        explained = cluster.iris("explain", "pip").out

        assert "attempt 1: set-up failed: `uv pip install six`" in explained
        assert "set-ups" in explained
