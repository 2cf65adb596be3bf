"""Operations on a cluster's autoscaler."""

from datetime import UTC, datetime

from iris.client.connect.identity import signed
from iris.client.connect.rpc import Connection
from iris.messages.autoscaler import AutoscalerStatus, CloseDown, PauseScaling


class AutoscalerClient:
    """Shows, pauses and resumes the autoscaler of one cluster."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def status(self) -> AutoscalerStatus:
        """Returns the state of the autoscaler: its groups, its slices and its last decisions.

        Raises:
            Unreachable: no control plane answers, or no control plane has ever started.
        """
        return await self._connection.query(self._connection.autoscaler, "status", AutoscalerStatus)

    async def pause(self, reason: str = "") -> None:
        """Stops the autoscaler from requesting and deleting slices.

        Args:
            reason: a text for the people who look at the autoscaler.

        Raises:
            Unreachable: the service does not answer.
        """
        await self._connection.signal_autoscaler("pause", PauseScaling(reason=signed(reason)))

    async def resume(self) -> None:
        """Lets the autoscaler request and delete slices again.

        Raises:
            Unreachable: the service does not answer.
        """
        await self._connection.signal_autoscaler("resume")

    async def close_down(self, reason: str) -> None:
        """Starts the deletion of all slices. The autoscaler requests no slice until the next
        configuration.

        Args:
            reason: a text for the people who look at the slices.

        Raises:
            Unreachable: the service does not answer.
        """
        await self._connection.signal_autoscaler(
            "close_down", CloseDown(reason=signed(reason), deadline=datetime.now(UTC))
        )
