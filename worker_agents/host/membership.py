"""Tracks whether the host is a member of its slice: the slice has it, its incarnation is over, or
the slice refuses it.
"""

import contextlib
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from temporalio.client import (
    Client,
    WorkflowExecutionStatus,
    WorkflowHandle,
    WorkflowQueryFailedError,
)
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.service import RPCError, RPCStatusCode

from iris.messages.slice import HostReady, SliceInput
from iris.messages.wire import HostLost
from iris.model import names
from iris.model.errors import Rejected
from iris.model.host.hosts import Host
from iris.model.slice.keys import public_key, sign
from iris.model.slice.status import SliceState, SliceStatus
from iris.worker_agents.host.incarnation import machine_key
from iris.workflows.search_attributes import keywords

RPC_TIMEOUT = timedelta(seconds=10)
#: If a slice's workflow was terminated, the agents on the machines that were created for the slice
#: wait at most this long for the cluster to manage the slice again. Then they stop.
ADOPTION_PATIENCE = timedelta(minutes=10)


class Membership:
    """Finds out whether the slice of a host still accepts the host's incarnation.

    Args:
        slice_key: the private key of the slice, on a machine that was created for it; None: a user
            brought the machine.
        slice_size: the number of the slice's hosts.
        directory: the agent's directory, with the key of a machine that a user brought; None if
            the machine has no key of its own.
    """

    def __init__(
        self,
        client: Client,
        cluster: str,
        host: Host,
        slice_key: str | None,
        slice_size: int,
        directory: Path | None = None,
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._host = host
        self._slice_key = slice_key
        self._slice_size = slice_size
        self._own_key = (
            machine_key(directory) if slice_key is None and directory is not None else ""
        )
        #: True once this incarnation was compared with the slice's status. If the slice does not
        #: list it in the first comparison, the slice may just not have read the host's report yet.
        #: In later ones, this means that the incarnation is over.
        self.expected = False
        #: True once the slice has accepted this incarnation.
        self.accepted = False
        #: The time at which this process first saw that the slice's workflow was terminated, on the
        #: process's monotonic clock; None while the workflow runs.
        self._orphaned_since: float | None = None

    async def is_over(self) -> bool:
        """Returns True if the cluster no longer has this incarnation, which another agent began and
        which is never accepted again.

        On a machine that was created for a slice, the slice decides that when the host reports
        ready.
        """
        if self._slice_key is not None:
            return False
        try:
            if (
                await self._slice().describe(rpc_timeout=RPC_TIMEOUT)
            ).status is not WorkflowExecutionStatus.RUNNING:
                return True
            status = await self._slice().query(
                "status", result_type=SliceStatus, rpc_timeout=RPC_TIMEOUT
            )
        except RPCError as error:
            return error.status is RPCStatusCode.NOT_FOUND
        except WorkflowQueryFailedError:
            return False
        members = {(host.id, host.incarnation) for host in status.hosts} - {*status.ended}
        taking = status.state in (SliceState.BOOTSTRAPPING, SliceState.READY)
        return not taking or (self._host.id, self._host.incarnation) not in members

    async def report(self) -> None:
        """Reports to the slice that this host is ready. A machine that a user brought starts its
        slice's workflow if there is none.
        """
        if self._slice_key is not None:
            ready = HostReady(host=self._host, signature=sign(self._slice_key, self._host))
            await self._slice().signal("host_ready", ready, rpc_timeout=RPC_TIMEOUT)
            return
        alone, key = self._slice_size == 1, self._own_key
        ready = HostReady(host=self._host)
        if key:
            ready = HostReady(
                host=self._host, signature=sign(key, self._host), public_key=public_key(key)
            )
        await self._client.start_workflow(
            names.WORKFLOW_TYPES[names.KIND_SLICE],
            SliceInput(cluster=self._cluster, id=self._host.slice_id, size=self._slice_size),
            id=names.slice_workflow(self._cluster, self._host.slice_id),
            task_queue=names.control_queue(self._cluster),
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            search_attributes=keywords(
                {
                    names.SA_CLUSTER: self._cluster,
                    names.SA_KIND: names.KIND_SLICE,
                    names.SA_STATE: SliceState.REQUESTED,
                }
            ),
            static_summary=(
                f"host {self._host.id}, which joined by itself"
                if alone
                else f"{self._slice_size} hosts, which joined by themselves"
            ),
            start_signal="host_ready",
            start_signal_args=[ready],
        )

    def host_has(self, fault: str) -> None:
        """Sets what is wrong with the host's machine, for the next report; empty: nothing."""
        self._host = self._host.model_copy(update={"fault": fault})

    async def sign_off(self, reason: str) -> None:
        """Reports the host as lost, so that the cluster removes it at once, and not only when its
        heartbeats are missing.
        """
        lost = HostLost(
            host_id=self._host.id, incarnation=self._host.incarnation, reason=reason, left=True
        )
        with contextlib.suppress(RPCError):
            await self._slice().signal("host_lost", lost, rpc_timeout=RPC_TIMEOUT)

    async def given_up(self) -> str:
        """Returns the reason why the cluster has given this incarnation up; empty: it has not, or
        does not answer.

        Raises:
            Rejected: this agent has to stop.
        """
        try:
            described = await self._slice().describe(rpc_timeout=RPC_TIMEOUT)
            if described.status is not WorkflowExecutionStatus.RUNNING:
                return self.ended(described.status)
            self._orphaned_since = None
            status = await self._slice().query(
                "status", result_type=SliceStatus, rpc_timeout=RPC_TIMEOUT
            )
            if self._slice_key is not None and all(
                host.id != self._host.id for host in status.hosts
            ):
                return await self._report_again(status)
        except RPCError as error:
            return self.ended(None) if error.status is RPCStatusCode.NOT_FOUND else ""
        except WorkflowQueryFailedError:
            return ""
        return self.replaced(status)

    def ended(self, how: WorkflowExecutionStatus | None) -> str:
        """Returns the reason for a new incarnation after the slice ended, on a machine that a user
        brought.

        Returns an empty reason while a machine created for the slice waits to be adopted.

        Raises:
            Rejected: the machine was created for the slice and is not wanted any more.
        """
        if self._slice_key is None:
            return "its slice is unknown" if how is None else "its slice has ended"
        now = time.monotonic()
        self._orphaned_since = self._orphaned_since or now
        if (
            how is WorkflowExecutionStatus.TERMINATED
            and now - self._orphaned_since < ADOPTION_PATIENCE.total_seconds()
        ):
            # terminated by hand: the autoscaler finds the machines, and their programs run on
            return ""
        raise Rejected(
            f"slice {self._host.slice_id}, for which this machine was created, has ended"
        )

    async def _report_again(self, status: SliceStatus) -> str:
        """Reports again to a slice that does not know this host: it lost the report, or its
        workflow is a new one.
        """
        if self._host.id in status.refused:
            raise Rejected(
                f"slice {self._host.slice_id} refused this machine, because it was not created for"
                " the slice"
            )
        await self.report()
        return ""

    def replaced(self, status: SliceStatus) -> str:
        """Returns the reason why this incarnation is over, by the slice's status; empty: it is not.

        Raises:
            Rejected: another agent has taken over this host.
        """
        if (self._host.id, self._host.incarnation) in status.ended:
            return "the scheduler has ended this incarnation"
        expected, self.expected = self.expected, True
        known = next((host.incarnation for host in status.hosts if host.id == self._host.id), None)
        self.accepted = self.accepted or known == self._host.incarnation
        if known == self._host.incarnation or not expected:
            return ""
        if known is not None and self._slice_key is None and self._host.id in status.refused:
            raise Rejected(
                f"host id {self._host.id} is in use by another machine, or by an agent with another"
                " --dir here; give this one another --host-id, or start it again when `iris host"
                " list` does not show that host any more"
            )
        if known is None:
            return "its slice was started again without this host"
        raise Rejected(
            f"another agent has taken over host {self._host.id} (incarnation {known}); this agent"
            " stops"
        )

    def _slice(self) -> WorkflowHandle[Any, Any]:
        return self._client.get_workflow_handle(
            names.slice_workflow(self._cluster, self._host.slice_id)
        )
