"""Finds and deletes the remains of clusters: slices without a workflow, and files and processes of
local clusters that do not run.
"""

import asyncio
import fcntl
import shutil
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from iris.client.client import AsyncIrisClient
from iris.client.connect.clusters import cluster_dir, read_record
from iris.client.connect.paths import state_dir
from iris.client.operate.delete_slices import delete_slices, unowned
from iris.client.operate.local.controller import LocalController
from iris.model.errors import NotFound, Unreachable
from iris.model.frozen import Frozen
from iris.model.slice.provisioning import SliceObservation
from iris.platforms.base import Unavailable
from iris.worker_agents.local.launch import clear_stopped, left_processes

if TYPE_CHECKING:
    from iris.client.operate.gcp.controller import GcpController

#: How long the machines of a local cluster may take to disappear.
DELETE_TIMEOUT = timedelta(minutes=1)
#: How long machines on Google Cloud may take to disappear. Google takes minutes to delete a TPU.
DELETE_TIMEOUT_ELSEWHERE = timedelta(minutes=15)


class Leftover(Frozen):
    """A slice, machine, process or directory that remains of a cluster."""

    cluster: str
    #: The kind of the leftover: `slice`, `machine` (of a control plane), `process` or `directory`.
    kind: str
    #: The id of a slice, the name of a machine, the number of a process or the path of a directory.
    id: str
    #: The zone of a slice or a machine; empty for a leftover on this machine.
    zone: str = ""
    #: The state of a slice or a machine; empty for a leftover on this machine.
    state: str = ""
    #: The platform's report on a slice, which `clean` needs to delete the slice; None for leftovers
    #: of other kinds.
    machines: SliceObservation | None = None

    def __str__(self) -> str:
        where = f" in {self.zone}" if self.zone else ""
        how = f" ({self.state})" if self.state else ""
        return f"{self.kind} {self.id}{where}{how} of cluster {self.cluster}"


async def leftovers(name: str | None) -> list[Leftover]:
    """Lists the leftovers of one cluster, or of all clusters on this machine if the name is None.

    Raises:
        Unreachable: the service of a running cluster does not answer, so it is unknown which
            machines have a workflow.
    """
    directories = sorted(path.name for path in state_dir().glob("clusters/*") if path.is_dir())
    found = []
    for each in [name] if name is not None else directories:
        record = read_record(each)
        if record is None:
            found += _of_failed_start(cluster_dir(each))
        elif record.remote:  # `left_elsewhere` checks such a cluster
            continue
        elif record.alive():
            client = await AsyncIrisClient.connect(each)
            found += [
                Leftover(
                    cluster=each, kind="slice", id=seen.slice_id, state=seen.state, machines=seen
                )
                for seen in await unowned(
                    client, (await (await LocalController.of(each).machines()).list_slices()).slices
                )
            ]
        # The leases of machines over SSH are for the next start; `iris cluster stop` ends them.
        elif record.over_ssh:
            found += [
                Leftover(cluster=each, kind="process", id=str(ref.pid))
                for ref in left_processes(each)
            ]
        else:
            plan = await LocalController.of(each).plan_stop()
            found += [Leftover(cluster=each, kind="slice", id=slice_id) for slice_id in plan.slices]
            found += [Leftover(cluster=each, kind="process", id=str(pid)) for pid in plan.processes]
            found += (
                [Leftover(cluster=each, kind="directory", id=str(cluster_dir(each)))]
                if record.ephemeral
                else []
            )
    return found


async def clean(found: list[Leftover]) -> None:
    """Deletes the leftovers of clusters on this machine.

    Raises:
        IrisError: some machines still exist.
    """
    for name in sorted({each.cluster for each in found}):
        machines = [
            each.machines for each in found if each.cluster == name and each.machines is not None
        ]
        if machines:
            await delete_slices(await LocalController.of(name).machines(), machines, DELETE_TIMEOUT)
        elif read_record(name) is None:
            shutil.rmtree(cluster_dir(name), ignore_errors=True)
        else:
            clear_stopped(name)


class Elsewhere(Frozen):
    """The leftovers of a cluster on Google Cloud."""

    #: The leftovers: slices without a live workflow. With `--controller`, if the control plane does
    #: not answer: all slices, and the control plane's machine if it exists.
    left: tuple[Leftover, ...] = ()
    #: The zones that could not be listed, with the error for each. Their slices and machines are
    #: unknown.
    unreachable: dict[str, str] = Field(default_factory=dict)


async def left_elsewhere(controller: "GcpController", *, with_controller: bool) -> Elsewhere:
    """Lists the resources on Google Cloud with the cluster's uid, except resources with the label
    iris-manual=true. Changes nothing.

    Args:
        with_controller: counts a control plane that does not answer as dead, and lists its machine
            and all slices.

    Raises:
        Unreachable: the cluster does not answer, and `with_controller` is not set, so it is unknown
            which machines have a workflow.
        PlatformError: Google does not answer at all.
    """
    remedy = (
        f"So it is not known which of its slices are in use; if cluster {controller.name} will not"
        " run again, add --controller to delete its control plane's machine and all of its slices"
    )
    try:
        seen = await controller.seen()
    except Unavailable as error:  # the machine may be in a zone that does not answer
        if not with_controller:
            raise Unreachable(f"{error}. {remedy}") from None
        seen = None
    ops = await controller.machines()
    listing = await ops.list_slices()
    slices = [
        Leftover(
            cluster=controller.name,
            kind="slice",
            id=each.slice_id,
            zone=each.zone,
            state=each.state,
            machines=each,
        )
        for each in listing.slices
    ]
    found = Elsewhere(left=tuple(slices), unreachable=listing.unreachable)
    if seen is None and controller.config.controller.temporal is None:
        return found  # its workflows were on that machine's disk
    try:
        if seen is not None:
            await asyncio.to_thread(controller.discover)  # writes the cluster's record here
        client = await AsyncIrisClient.connect(controller.name)
        lost = {each.slice_id for each in await unowned(client, listing.slices)}
    except (NotFound, Unreachable) as error:
        if with_controller and seen is not None:
            machine = Leftover(
                cluster=controller.name,
                kind="machine",
                id=seen.name,
                zone=seen.zone,
                state=seen.status,
            )
            slices.insert(0, machine)
        if with_controller:
            return found.model_copy(update={"left": tuple(slices)})
        raise Unreachable(f"{error}. {remedy}") from None
    return found.model_copy(update={"left": tuple(each for each in slices if each.id in lost)})


async def clean_elsewhere(controller: "GcpController", found: Elsewhere) -> None:
    """Deletes the leftovers of a cluster on Google Cloud.

    Raises:
        IrisError: some of them still exist.
    """
    if any(each.kind == "machine" for each in found.left):
        # The control plane goes first, because it would create new slices. This also deletes all
        # other machines of the cluster.
        await asyncio.to_thread(controller.stop)
    else:
        machines = [each.machines for each in found.left if each.machines is not None]
        await delete_slices(await controller.machines(), machines, DELETE_TIMEOUT_ELSEWHERE)


def _of_failed_start(directory: Path) -> list[Leftover]:
    """Returns the directory of a start that failed or was killed. Such a directory has no record,
    no database and no supervisor.

    An unreadable record, such as the record of another version, protects the directory.
    """
    protected = any((directory / name).exists() for name in ("cluster.json", "temporal.sqlite"))
    if protected or _locked(directory / "lock"):
        return []
    return [Leftover(cluster=directory.name, kind="directory", id=str(directory))]


def _locked(path: Path) -> bool:
    """Returns whether a supervisor holds this lock."""
    try:
        with path.open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
