"""Operations on a cluster's autoscaler."""

from datetime import UTC, datetime

from iris.client.connect.identity import signed
from iris.client.connect.rpc import Connection
from iris.messages.autoscaler import AutoscalerStatus, CloseDown, PauseScaling


class AutoscalerClient:
    """The autoscaler of one cluster."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def status(self) -> AutoscalerStatus:
        """Returns the autoscaler's status.

        Raises:
            Unreachable: no control plane answers, or none has ever started.
        """
        return await self._connection.query(self._connection.autoscaler, "status", AutoscalerStatus)

    async def pause(self, reason: str = "") -> None:
        """Stops the autoscaler from requesting and deleting slices."""
        await self._connection.signal_autoscaler("pause", PauseScaling(reason=signed(reason)))

    async def resume(self) -> None:
        """Lets the autoscaler request and delete slices again."""
        await self._connection.signal_autoscaler("resume")

    async def close_down(self, reason: str) -> None:
        """Starts the deletion of all slices. The autoscaler requests no slice until its next configuration."""
        await self._connection.signal_autoscaler("close_down", CloseDown(reason=signed(reason), deadline=datetime.now(UTC)))
