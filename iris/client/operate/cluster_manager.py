"""Starts a cluster, gives its address, and stops it again."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from iris.client.operate.controller import ControllerProtocol, Progress
from iris.client.operate.make_controller import create_controller
from iris.config import ClusterConfig, local_config, make_local_config
from iris.model.host.accelerators import Tpu

T = TypeVar("T")


class ClusterManager:
    """Starts and stops one cluster, on this machine or on the platform that its configuration
    names. The constructor changes nothing.

    with ClusterManager(make_local_config(load_config(path))).connect() as address:
        ...
    """

    def __init__(
        self,
        config: ClusterConfig,
        *,
        ephemeral: bool = False,
        owned: bool = False,
        progress: Progress | None = None,
    ) -> None:
        """Creates a manager for the configuration's cluster.

        Args:
            config: from `iris.load_config` or `iris.make_local_config`.
            ephemeral: a local cluster deletes its data when it stops.
            owned: a local cluster stops when this process ends, however it ends.
            progress: called with progress messages of long operations.
        """
        self._config = config
        self._ephemeral = ephemeral
        self._owned = owned
        self._progress = progress or (lambda _: None)
        self._controller: ControllerProtocol | None = None

    @property
    def is_local(self) -> bool:
        """Returns whether the cluster is on this machine."""
        return self._config.platform.local is not None

    @property
    def controller(self) -> ControllerProtocol:
        """The cluster's control plane.

        Raises:
            RuntimeError: the cluster was not started, or has been stopped.
        """
        if self._controller is None:
            raise RuntimeError("there is no controller: call ClusterManager.start() first")
        return self._controller

    def start(self, *, new: bool = False) -> str:
        """Starts the cluster, or finds a running cluster elsewhere. Returns the address of its
        Temporal service, `host:port`.

        Args:
            new: whether to refuse a cluster that exists already, and to remove a new one that does
                not come up.

        Raises:
            InvalidValue: this version does not support the configuration.
            Rejected: a cluster with this name runs already: here, or elsewhere if `new`.
            IrisError: the cluster did not start.
        """
        controller = create_controller(
            self._config, ephemeral=self._ephemeral, owned=self._owned, progress=self._progress
        )
        address = _without_event_loop(lambda: controller.start(new=new))
        self._controller = controller
        return address

    def stop(self) -> None:
        """Stops the cluster that was started or found, if any. It can be started again.

        Raises:
            IrisError: a part of the cluster did not stop.
        """
        if self._controller is not None:
            _without_event_loop(self._controller.stop)
            self._controller = None

    @contextmanager
    def connect(self) -> Iterator[str]:
        """Starts a new cluster for the block, yields its address, and stops the cluster when the
        block ends, also with an error.

        Raises:
            Rejected: the cluster exists already, so this block must not stop it.
            InvalidValue, IrisError: as in `start`.
        """
        address = self.start(new=True)
        try:
            yield address
        finally:
            self.stop()


def temporary_cluster(
    name: str, config: ClusterConfig | None = None, *, tpu: Tpu | None = None
) -> ClusterManager:
    """Returns the manager of a cluster on this machine that ends with this process at the latest,
    and leaves no data.

    Args:
        config: a configuration whose scale groups the cluster gets; None for one host.
        tpu: the type of the simulated slice of a cluster without a configuration.
    """
    own = make_local_config(config, name) if config is not None else local_config(name, tpu=tpu)
    return ClusterManager(own, ephemeral=True, owned=True)


def _without_event_loop(call: Callable[[], T]) -> T:
    """Makes the call in another thread if this one runs an event loop, as a notebook's does: the
    call runs one itself.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return call()
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(call).result()
