"""`iris host drain --deadline` on a real cluster, whose slices are made."""

import pytest

from tests.e2e.cluster import a_cluster, eventually, until

pytestmark = pytest.mark.long


def test_a_host_of_a_made_slice_is_given_back_with_all_of_it_at_the_deadline() -> None:
    """A slice is bought and deleted as a whole; whoever drains one of its hosts is told so, and the
    job goes elsewhere.
    """
    with a_cluster("--cpu", "1", "--hosts", "1", "--ephemeral") as cluster:
        cluster.submit("long", "--", "sh", "-c", f"touch long.$IRIS_HOST_ID; {until('long.go')}")
        host = cluster.only_host()
        cluster.there_is(f"long.{host}")
        said = cluster.iris("host", "drain", host, "--deadline", "1s", "--reason", "new kernel").out
        assert f"slice {host}, which is drained as a whole" in said
        assert "1s" in said
        eventually(lambda: cluster.status("long")["tasks"][0]["host"] not in (None, host))
        cluster.file("long.go").touch()
        cluster.iris("wait", "long")
        slice_ = cluster.slice(host)
        assert slice_ is not None
        assert "new kernel" in str(slice_)
