"""What clusters on this machine have left over: machines that nobody looks after, and what dead clusters did not clear away."""

import fcntl
import shutil
from datetime import timedelta
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from iris.client.closing import delete_slices, unowned
from iris.client.clusters import cluster_dir, read_record, state_dir
from iris.client.controllers import LocalController
from iris.client.scaling import FleetClient
from iris.machines import SliceObservation
from iris.worker_agents.local_launch import clear_stopped

#: How long machines may take to go.
DELETE = timedelta(minutes=1)


class Leftover(BaseModel):
    """Something that a cluster on this machine has left."""

    model_config = ConfigDict(frozen=True)

    cluster: str
    what: str
    #: Machines of a cluster that runs; None: all that is left of one that does not.
    machines: SliceObservation | None = None

    def __str__(self) -> str:
        return f"{self.what} of cluster {self.cluster}"


async def leftovers(name: str | None) -> list[Leftover]:
    """What that cluster has left, or what all clusters on this machine have.

    Raises:
        Unreachable: a cluster runs whose server does not answer: which of its machines are looked after is not known.
    """
    directories = sorted(path.name for path in state_dir().glob("clusters/*") if path.is_dir())
    found = []
    for each in [name] if name is not None else directories:
        record = read_record(each)
        if record is None:
            found += _nameless(cluster_dir(each))
        elif record.alive():
            client = await FleetClient.connect(each)
            found += [
                Leftover(cluster=each, what=f"slice {seen.slice_id} ({seen.state})", machines=seen)
                for seen in await unowned(client, LocalController.of(each).machines())
            ]
        else:
            plan = await LocalController.of(each).plan_stop()
            found += [Leftover(cluster=each, what=f"slice {slice_id}") for slice_id in plan.slices]
            found += [Leftover(cluster=each, what=f"process {pid}") for pid in plan.processes]
            found += [Leftover(cluster=each, what=f"directory {cluster_dir(each)}")] if record.ephemeral else []
    return found


async def clean(found: list[Leftover]) -> None:
    """Delete it.

    Raises:
        IrisError: some machines are still there.
    """
    for name in sorted({each.cluster for each in found}):
        machines = [each.machines for each in found if each.cluster == name and each.machines is not None]
        if machines:
            await delete_slices(LocalController.of(name).machines(), machines, DELETE)
        elif read_record(name) is None:
            shutil.rmtree(cluster_dir(name), ignore_errors=True)
        else:
            clear_stopped(name)


def _nameless(directory: Path) -> list[Leftover]:
    """A directory that says nothing of its cluster and has nothing of worth: a start that failed, or was killed."""
    if (directory / "temporal.sqlite").exists() or _locked(directory / "lock"):
        return []
    return [Leftover(cluster=directory.name, what=f"directory {directory}")]


def _locked(path: Path) -> bool:
    """Whether a supervisor is at work there."""
    try:
        with path.open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
