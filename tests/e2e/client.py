"""A client of a test's cluster in the process of the test."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import iris
from tests.e2e.cluster import USER, Cluster

#: Prints numbered lines until the file `go` exists.
COUNTS = "n=0; while [ ! -e go ]; do echo line $n; n=$((n + 1)); sleep 0.1; done; echo end $n"


@contextmanager
def connected(cluster: Cluster) -> Iterator[iris.IrisClient]:
    """A client in this process, as the user of the cluster."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IRIS_STATE_DIR", str(cluster.home))
        patch.setenv("IRIS_USER", USER)
        with iris.IrisClient(cluster.name) as client:
            yield client
