"""Implements a platform on machines that exist already: a slice is a lease of one machine.

A lease is a file on the machine itself, so nothing is forgotten when the control plane dies, and
two clusters never have the same machine. `HostKeeper` starts the agents of leased machines; the
methods here start nothing.
"""

import asyncio
import base64
import logging
import secrets
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from iris.model import names
from iris.model.errors import InvalidValue
from iris.model.slice.keys import KEY_BYTES, public_key
from iris.model.slice.provisioning import DeleteResult, FleetListing, SliceObservation, SliceRequest
from iris.model.slice.scale_groups import SliceType
from iris.platforms.base import MAX_OUTPUT_BYTES, BadConfig, StockOut, Unavailable
from iris.platforms.manual.connections import Connections, MachineFault, UnusableMachine
from iris.platforms.manual.leases import (
    JOBS,
    Fault,
    HostState,
    Lease,
    encoded,
    host_id,
    observation_of,
    script,
    state_of,
)
from iris.platforms.manual.settings import HostAccess, ManualSettings

logger = logging.getLogger(__name__)

#: The time limit for a command that only reads or writes a few files.
COMMAND_LIMIT = timedelta(seconds=15)
#: The time limit for the last step of a deletion, which kills programs and removes a virtual
#: environment.
REMOVE_LIMIT = timedelta(seconds=50)
#: The time limit for the end of an agent, which first gives its programs their grace period (30 s
#: by default) to stop.
GRACE = timedelta(seconds=45)
#: The maximum number of machines that an error about a refused slice names.
MAX_REASONS = 5
#: The time limit for reading the state of one machine, including the SSH login, and the time limit
#: for the script that reads the state, without the login.
LIST_LIMIT, LOOK_LIMIT = timedelta(seconds=8), timedelta(seconds=6)

#: The maximum number of slices for which the platform remembers the machines that may have the
#: slice's lease.
MAX_REMEMBERED = 1000

#: A function that the platform calls for each machine that is leased by a slice, except if the
#: slice is being deleted. It has the slice's agent installed and started there.
Attend = Callable[[HostAccess, SliceRequest], None]
#: A function that returns why the agent of the slice with this id does not run; None if no fault is
#: known.
FaultOf = Callable[[str], Fault | None]


class Survey(NamedTuple):
    """The slices on all machines, and the machines that could not be reached over SSH."""

    #: The slices on the machines that answered.
    slices: tuple[SliceObservation, ...]
    #: The machines that did not answer, and the reason for each.
    silent: dict[HostAccess, str]


class ManualPlatform:
    """Manages the slices of one cluster on machines that exist already. Each slice leases one
    machine.

    Args:
        attend: called for each machine that has a slice of the cluster, unless the slice is being
            deleted.
        fault_of: returns why the agent of a slice does not run; None if no fault is known.
        avoid: returns why a machine gets no new slice for a while, because a slice did not start
            there; empty if the machine may get one.
    """

    def __init__(
        self,
        settings: ManualSettings,
        connections: Connections | None = None,
        *,
        attend: Attend = lambda host, request: None,
        fault_of: FaultOf = lambda slice_id: None,
        avoid: Callable[[HostAccess], str] = lambda host: "",
    ) -> None:
        self._settings = settings
        self._connections = connections or Connections(settings)
        self._attend = attend
        self._fault_of = fault_of
        self._avoid = avoid
        #: The machines that may have the lease of a slice, by slice id. For a slice that was not
        #: requested through this object, there is no entry, and any machine may have its lease.
        self._may_have: dict[str, set[HostAccess]] = {}
        #: The machines that a slice failed to lease before it leased another machine, by slice id.
        #: The lease may still appear on them later, if only the answer was lost.
        self._passed_over: dict[str, set[HostAccess]] = {}

    async def create_slice(self, request: SliceRequest) -> SliceObservation:
        """Implements `Platform.create_slice`: leases a free machine of the group."""
        _check(request)
        hosts = self._settings.hosts.get(request.group.name, ())
        may_have = self._may_have.setdefault(request.slice_id, set())
        for oldest in list(self._may_have)[:-MAX_REMEMBERED]:
            del self._may_have[oldest]
            self._passed_over.pop(oldest, None)
        states = await self._settled(hosts)
        may_have.update(
            host for host, state in states.items() if self._has(state, request.slice_id)
        )
        if (found := self._lease_of(request, states)) is not None:
            return found
        free = [
            host
            for host, state in states.items()
            if isinstance(state, HostState) and state.free and not self._closed(host)
        ]
        failed: set[HostAccess] = set()
        for host in free:
            may_have.add(host)
            try:
                states[host] = await self._lease(host, request)
            except MachineFault as error:
                states[host] = error
                failed.add(host)
                continue
            if self._lease_of(request, {host: states[host]}) is not None:
                # Another call may have leased another machine for the same request.
                states = await self._settled(hosts)
                found = self._lease_of(request, states)
                if found is None:
                    raise Unavailable(f"slice {request.slice_id} is being deleted")
                kept = {
                    each for each, state in states.items() if self._has(state, request.slice_id)
                }
                self._passed_over[request.slice_id] = failed - kept
                return found
        raise StockOut(f"no machine is free ({self._none_free(states) or 'the group has none'})")

    async def describe_slice(self, slice_id: str, zone: str) -> SliceObservation | None:
        """Implements `Platform.describe_slice`."""
        states = await self._settled(self._settings.all_hosts)
        for host, state in states.items():
            if self._has(state, slice_id):
                return self._observed(host, state)
        self._check_complete(slice_id, states)
        return None

    async def last_output(self, slice_id: str, zone: str) -> str:
        """Implements `Platform.last_output`: the end of the agent's log."""
        states = await self._look_at(self._settings.all_hosts)
        for host, state in states.items():
            if self._has(state, slice_id):
                lines = script(self._settings, "output", SLICE=slice_id)
                answer = await self._connections.script(
                    host, lines, limit=COMMAND_LIMIT, what="reading the agent's log"
                )
                text = base64.b64decode(answer.get("output", "")).decode(errors="replace")
                fault = self._fault_of(slice_id)
                said = f"{fault.reason if fault is not None else ''}\n{text}".strip()
                return said.encode()[-MAX_OUTPUT_BYTES:].decode(errors="ignore")
        return ""

    async def delete_slice(self, slice_id: str, zone: str) -> DeleteResult:
        """Implements `Platform.delete_slice`. The first call asks the agent to end, a later one
        kills what runs and removes everything.

        A slice without a lease is LEFT: a machine that is no longer configured is not asked.
        """
        states = await self._look_at(self._settings.all_hosts)
        left = [(host, state) for host, state in states.items() if self._has(state, slice_id)]
        if not left:
            self._check_complete(slice_id, states)
            return DeleteResult.LEFT
        after = [
            await self._delete(host, state, slice_id)
            for host, state in left
            if isinstance(state, HostState)
        ]
        # A slice has one machine: the others need not answer.
        return (
            DeleteResult.GOING
            if any(self._has(state, slice_id) for state in after)
            else DeleteResult.GONE
        )

    async def list_slices(self) -> FleetListing:
        """Implements `Platform.list_slices`. The content of the zone is unknown while a machine
        does not answer.
        """
        found = self._surveyed(await self._settled(self._settings.all_hosts))
        silent: dict[str, list[str]] = {}
        for group, hosts in self._settings.hosts.items():
            for why in (found.silent[host] for host in hosts if host in found.silent):
                for zone in self._settings.zones[group]:
                    silent.setdefault(zone, []).append(why)
        return FleetListing(
            slices=found.slices,
            unreachable={zone: "; ".join(dict.fromkeys(whys)) for zone, whys in silent.items()},
        )

    async def survey(self) -> Survey:
        """Visits every machine once, however long its login takes within `ssh.connect_timeout`."""
        return self._surveyed(await self._look_at(self._settings.all_hosts, patient=True))

    async def unusable(self) -> dict[HostAccess, str]:
        """Returns why machines cannot be leased and are not leased to this cluster already. Changes
        nothing.

        A login may take `ssh.connect_timeout`.
        """
        states = await self._look_at(self._settings.all_hosts, patient=True)
        retiring = self._settings.retiring
        unusable = [
            host
            for host, state in states.items()
            if not self._usable(state) or host.address in retiring
        ]
        return {host: self._why_not(host, states[host]) for host in unusable}

    # -- private
    # ----------------------------------------------------------------------------------------------

    def _surveyed(self, states: dict[HostAccess, HostState | MachineFault]) -> Survey:
        slices = {}
        for host, state in states.items():
            if (
                isinstance(state, HostState)
                and state.lease is not None
                and state.lease.uid == self._settings.uid
            ):
                slices[state.lease.request.slice_id] = self._observed(host, state)
        silent = {
            host: str(state) for host, state in states.items() if isinstance(state, MachineFault)
        }
        return Survey(tuple(slices.values()), silent)

    async def _look_at(
        self, hosts: Iterable[HostAccess], *, patient: bool = False
    ) -> dict[HostAccess, HostState | MachineFault]:
        """Returns the state of each machine, or why it is unknown.

        A machine with two names in the configuration is the one under which it was leased. The
        other name counts as down.

        Args:
            patient: waits for each login until it succeeds or fails, instead of `LIST_LIMIT`.
        """
        limit = None if patient else LIST_LIMIT.total_seconds()
        states = dict(
            zip(
                hosts,
                await asyncio.gather(*(self._look(host, limit) for host in hosts)),
                strict=True,
            )
        )
        names = {host.address for host in self._settings.all_hosts}
        for host, state in states.items():
            lease = state.lease if isinstance(state, HostState) else None
            if lease is None or lease.uid != self._settings.uid or lease.address == host.address:
                continue
            if lease.address in names:
                states[host] = UnusableMachine(
                    f"{host}: is the same machine as {lease.address}; list it only once"
                )
        return states

    async def _look(self, host: HostAccess, limit: float | None) -> HostState | MachineFault:
        asked = script(self._settings, "look")
        try:
            async with asyncio.timeout(limit):
                answer = await self._connections.script(
                    host, asked, limit=LOOK_LIMIT, what="reading the lease", hurried=True
                )
        except MachineFault as error:
            return error
        except TimeoutError:
            if not self._connections.is_logging_in(host):
                return MachineFault(f"{host}: reading the lease did not end within {limit:g} s")
            through = f" through its jump host {host.jump_host}" if host.jump_host else ""
            longest = f"{self._settings.connect_timeout.total_seconds():g} s (ssh.connect_timeout)"
            return MachineFault(
                f"{host}: still logging in to port {host.port}{through} after {limit:g} s; the"
                f" limit is {longest}"
            )
        return state_of(answer)

    async def _lease(self, host: HostAccess, request: SliceRequest) -> HostState:
        key = secrets.token_hex(KEY_BYTES)
        lease = Lease(
            uid=self._settings.uid,
            request=request,
            created_at=datetime.now(UTC),
            public_key=public_key(key),
            address=host.address,
        )
        asked = script(self._settings, "lease", LEASE=encoded(lease.model_dump_json()), KEY=key)
        return state_of(
            await self._connections.script(
                host, asked, limit=COMMAND_LIMIT, what="leasing the machine"
            )
        )

    async def _settled(
        self, hosts: Iterable[HostAccess]
    ) -> dict[HostAccess, HostState | MachineFault]:
        """Returns what `_look_at` returns, after it has ended all leases of a slice but one.

        A machine whose lease does not end at once is not in the result.
        """
        states = await self._look_at(hosts)
        for host, slice_id in self._superfluous(states):
            logger.warning(
                "slice %s: %s is given back, because another machine was leased for the slice",
                slice_id,
                host,
            )
            state = states[host]
            assert isinstance(state, HostState)
            try:
                states[host] = await self._delete(
                    host, await self._delete(host, state, slice_id), slice_id
                )
            except MachineFault as error:
                states[host] = error
            if self._has(states[host], slice_id):
                del states[host]
        return states

    def _superfluous(
        self, states: Mapping[HostAccess, HostState | MachineFault]
    ) -> list[tuple[HostAccess, str]]:
        """Returns the machines whose slices have another one, with these slices.

        Of several machines, a slice keeps one that was not passed over, that is not being given
        back, and on which its agent was started, in this order; the first in the list otherwise. A
        machine that is listed twice has the same lease twice.
        """
        found: dict[str, dict[HostAccess, tuple[bool, bool, bool, str]]] = {}
        for host, state in states.items():
            if (
                isinstance(state, HostState)
                and state.lease is not None
                and state.lease.uid == self._settings.uid
            ):
                slice_id = state.lease.request.slice_id
                passed_over = host in self._passed_over.get(slice_id, ())
                lease = (passed_over, state.deleting, not state.started, state.lease.public_key)
                found.setdefault(slice_id, {})[host] = lease
        superfluous = []
        for slice_id, leases in found.items():
            kept = min(leases.values(), key=lambda lease: lease[:3])
            superfluous += [
                (host, slice_id) for host, lease in leases.items() if kept[0] or lease[3] != kept[3]
            ]
        return superfluous

    async def _delete(self, host: HostAccess, state: HostState, slice_id: str) -> HostState:
        """Asks the agent to end. At a later call, after the agent has ended or its time limit is
        over, removes everything.
        """
        what = f"deleting slice {slice_id}"
        if not state.deleting:
            asked, limit = script(self._settings, "mark", SLICE=slice_id), COMMAND_LIMIT
        else:
            jobs, grace = JOBS.format(slice_id=slice_id), str(int(GRACE.total_seconds()))
            asked = script(
                self._settings,
                "remove",
                SLICE=slice_id,
                HOST=host_id(slice_id),
                JOBS=jobs,
                GRACE=grace,
            )
            limit = REMOVE_LIMIT
        return state_of(await self._connections.script(host, asked, limit=limit, what=what))

    def _has(self, state: HostState | MachineFault, slice_id: str) -> bool:
        """Returns True if the machine is leased to this slice of this cluster."""
        if not isinstance(state, HostState) or state.lease is None:
            return False
        return (state.lease.uid, state.lease.request.slice_id) == (self._settings.uid, slice_id)

    def _usable(self, state: HostState | MachineFault) -> bool:
        if not isinstance(state, HostState) or state.unreadable:
            return False
        return state.lease is None or (state.lease.uid == self._settings.uid and not state.deleting)

    def _lease_of(
        self, request: SliceRequest, states: dict[HostAccess, HostState | MachineFault]
    ) -> SliceObservation | None:
        """Returns the slice that an earlier call leased for this request; None: there is none."""
        for host, state in states.items():
            if not self._has(state, request.slice_id):
                continue
            assert isinstance(state, HostState)
            assert state.lease is not None
            there = state.lease.request
            if state.deleting:
                raise Unavailable(f"slice {request.slice_id} is being deleted")
            if (there.cluster, there.token, there.zone) != (
                request.cluster,
                request.token,
                request.zone,
            ):
                raise BadConfig(
                    f"slice {request.slice_id} already exists on {host} and was created by another"
                    " request"
                )
            return self._observed(host, state)
        return None

    def _observed(self, host: HostAccess, state: HostState | MachineFault) -> SliceObservation:
        assert isinstance(state, HostState)
        assert state.lease is not None
        if not state.deleting:
            self._attend(host, state.lease.request)
        return observation_of(host, state, self._fault_of(state.lease.request.slice_id))

    def _none_free(self, states: Mapping[HostAccess, HostState | MachineFault]) -> str:
        """Returns why none of these machines is free: how many have slices of this cluster, and why
        others cannot be leased.
        """
        serving = [host for host, state in states.items() if self._is_ours(state)]
        others = [
            f"{host}: {self._why_not(host, state)}"
            for host, state in states.items()
            if host not in serving
        ]
        more = [f"and {len(others) - MAX_REASONS} more"] if len(others) > MAX_REASONS else []
        ours = [f"{len(serving)} of {len(states)} serve this cluster"] if serving else []
        return ", ".join([*ours, *others[:MAX_REASONS], *more])

    def _is_ours(self, state: HostState | MachineFault) -> bool:
        """Returns whether the machine has a slice of this cluster that stays."""
        return isinstance(state, HostState) and state.lease is not None and self._usable(state)

    def _why_not(self, host: HostAccess, state: HostState | MachineFault) -> str:
        """Returns why the machine cannot be leased."""
        if isinstance(state, MachineFault):
            return str(state).removeprefix(f"{host}: ")
        if state.unreadable:
            return "is leased by another version of Iris"
        if state.lease is None:
            return self._closed(host)
        request = state.lease.request
        if state.lease.uid != self._settings.uid:
            return f"is leased to cluster {request.cluster}"
        return f"has slice {request.slice_id}" + (
            ", which is being deleted" if state.deleting else ""
        )

    def _closed(self, host: HostAccess) -> str:
        """Returns why no slice begins on the machine, although none is there; empty: one may
        begin.
        """
        return (
            "is being removed (retiring_hosts)"
            if host.address in self._settings.retiring
            else self._avoid(host)
        )

    def _check_complete(
        self, slice_id: str, states: dict[HostAccess, HostState | MachineFault]
    ) -> None:
        """Checks that no machine may have the slice. One that was down when the slice found no
        machine cannot have it.

        Raises:
            Unavailable: one that may have it does not answer.
        """
        may_have = self._may_have.get(slice_id, set(states))
        silent = [
            str(state)
            for host, state in states.items()
            if isinstance(state, MachineFault) and host in may_have
        ]
        if silent:
            raise Unavailable(
                f"it is unknown whether slice {slice_id} is gone: {'; '.join(silent)}"
            )


def _check(request: SliceRequest) -> None:
    """Refuses a request that no machine can fulfil."""
    try:
        names.check_name("slice", request.slice_id)
        names.check_name("host", host_id(request.slice_id))
    except InvalidValue as error:
        raise BadConfig(str(error)) from None
    if request.group.hosts != 1 or request.group.type is not SliceType.MANUAL_VM:
        raise BadConfig(
            f"scale group {request.group.name} has slices of {request.group.hosts} hosts of type"
            f" {request.group.type}; on machines over SSH, a slice is one host of type"
            f" {SliceType.MANUAL_VM}"
        )
