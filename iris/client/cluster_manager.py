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

    def start(self, *, new: bool = False) -> str:
        """Start the cluster, or find one elsewhere that is there; its address, `host:port` of its Temporal service.

        Args:
            new: one that is there already is refused, and nothing stays of one that does not come up.

        Raises:
            InvalidValue: this version cannot serve it.
            Rejected: a cluster of that name runs already, here or, if it is to be new, elsewhere.
            IrisError: it did not start.
        """
        controller = create_controller(self._config, ephemeral=self._ephemeral, tell=self._tell)
        address = controller.start(new=new)
        self._controller = controller
        return address

    def stop(self) -> None:
        """Stop what was started or found, if anything was; afterwards it can be started again."""
        if self._controller is not None:
            self._controller.stop()
            self._controller = None

    @contextmanager
    def connect(self) -> Iterator[str]:
        """The address of the cluster, which is made for the block and is gone after it, however that ends.

        Raises:
            Rejected: it is there already, and so is not to be stopped at the end of this block.
            InvalidValue, IrisError: as `start` does.
        """
        address = self.start(new=True)
        try:
            yield address
        finally:
            self.stop()
