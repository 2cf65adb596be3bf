"""A cluster for as long as somebody needs it: started, used by its address, stopped."""

from collections.abc import Iterator
from contextlib import contextmanager

from iris.client.controllers import ControllerProtocol, Tell, create_controller
from iris.config import ClusterConfig


class ClusterManager:
    """The life of a cluster, wherever its configuration puts it. Nothing happens before `start`.

    with ClusterManager(make_local_config(load_config(path))).connect() as address:
        ...
    """

    def __init__(self, config: ClusterConfig, *, ephemeral: bool = False, tell: Tell | None = None) -> None:
        """
        Args:
            ephemeral: a local cluster keeps nothing.
            tell: is told what a long operation waits for.
        """
        self._config = config
        self._ephemeral = ephemeral
        self._tell = tell or (lambda _: None)
        self._controller: ControllerProtocol | None = None

    @property
    def is_local(self) -> bool:
        """Whether the cluster is on this machine."""
        return self._config.controller.local is not None

    @property
    def controller(self) -> ControllerProtocol:
        """The control plane.

        Raises:
            RuntimeError: it was not started, or has been stopped.
        """
        if self._controller is None:
            raise RuntimeError("there is no controller: call ClusterManager.start() first")
        return self._controller

    def start(self) -> str:
        """Start the cluster; its address, `host:port` of its Temporal service.

        Raises:
            InvalidValue: this version cannot serve it.
            Rejected: a cluster of that name runs already.
            IrisError: it did not start.
        """
        controller = create_controller(self._config, ephemeral=self._ephemeral, tell=self._tell)
        address = controller.start()
        self._controller = controller
        return address

    def stop(self) -> None:
        """Stop what was started, if anything was; afterwards it can be started again."""
        if self._controller is not None:
            self._controller.stop()
            self._controller = None

    @contextmanager
    def connect(self) -> Iterator[str]:
        """The address of the cluster, which runs until the end of the block, however that ends."""
        address = self.start()
        try:
            yield address
        finally:
            self.stop()
