"""A cluster of machines that users bring, on a Temporal service that exists already: what
`docker/compose.yaml` sets up.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.e2e.cluster import Cluster, Running, a_home, eventually


class OwnCluster(Cluster):
    """A control plane and agents that connect to a Temporal service, each started by its own
    command.

    Args:
        addresses: of the service's servers: the first serves the control plane, agents and commands
            use the last.
    """

    def __init__(
        self, home: Path, name: str, addresses: Sequence[str], namespace: str = "default"
    ) -> None:
        super().__init__(home, name)
        self._addresses = addresses
        self._namespace = namespace

    @property
    def address(self) -> str:
        return self._addresses[-1]

    def begin(
        self, *arguments: str, cwd: Path | None = None, merged: bool = False, **env: str
    ) -> Running:
        own = {"IRIS_CLUSTER": f"{self.address}/{self.name}", "TEMPORAL_NAMESPACE": self._namespace}
        return super().begin(*arguments, cwd=cwd, merged=merged, **{**own, **env})

    def temporal(self, *arguments: str) -> Any:
        return super().temporal(*arguments, "--namespace", self._namespace)

    def serve(self, server: int = 0) -> Running:
        """Starts a control plane, and does not wait for it.

        Args:
            server: the number of the Temporal server to which it connects.
        """
        (self.home / "store").mkdir(mode=0o700, exist_ok=True)
        where = (
            "--name",
            self.name,
            "--address",
            self._addresses[server],
            "--namespace",
            self._namespace,
        )
        return self.begin("controller", "serve", *where, "--store", (self.home / "store").as_uri())

    def join(self, host: str, *options: str, **env: str) -> Running:
        """A machine joins the cluster; returns its agent when the host takes work."""
        agent = self.begin(
            "agent",
            "--join",
            "--run-as=root",
            "--host-id",
            host,
            "--dir",
            str(self.home / host),
            *options,
            **env,
        )
        eventually(lambda: self._takes_work(host, agent), every=0.5)
        return agent

    def _takes_work(self, host: str, agent: Running) -> bool:
        assert agent.process.poll() is None, agent.err
        listed = self.iris("host", "list", "--json", code=None)
        return listed.code == 0 and host in [each["id"] for each in listed.json]

    def start(self) -> "OwnCluster":
        control = self.serve()

        def serves() -> bool:
            assert control.process.poll() is None, control.err
            return self.iris("host", "list", "--json", code=None).code == 0

        eventually(serves, every=0.5)
        return self


@contextmanager
def an_own_cluster(
    addresses: Sequence[str], name: str, namespace: str = "default"
) -> Iterator[OwnCluster]:
    """A cluster without hosts; afterwards none of its processes is left."""
    with a_home() as home:
        cluster = OwnCluster(home, name, addresses, namespace)
        try:
            yield cluster.start()
        finally:
            cluster.clear()
