"""The life of a cluster as a program has it, and machines that are given back without a control
plane.
"""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from iris.client.fleet.slices import matching_id
from iris.client.operate.cluster_manager import ClusterManager
from iris.client.operate.delete_slices import delete_all
from iris.client.operate.local.controller import LocalController
from iris.config import load_config, local_config, make_local_config
from iris.config.controller_settings import Controller, LocalControllerConfig
from iris.model.errors import InvalidValue, IrisError, NotFound, Rejected
from iris.model.slice.provisioning import DeleteResult, FleetListing, MachineState, SliceObservation
from iris.platforms.base import RateLimited, Unavailable
from iris.processes.process import free_ports

EXAMPLES = Path(__file__).parents[3] / "examples"
SOON = timedelta(seconds=20)


def test_a_control_plane_that_cannot_be_started_is_refused(tmp_path: Path) -> None:
    """What is written of it may be right; this version does not know how."""
    file = tmp_path / "cluster.yaml"
    file.write_text(
        "platform: {manual: {}}\ncontroller: {bundle_prefix: 's3://b/p', local: {}, temporal:"
        " {address: 't:1'}}\n"
    )
    elsewhere = ClusterManager(load_config(file))
    with pytest.raises(
        InvalidValue, match=r"controller.temporal: 't:1' is not supported with platform.manual"
    ):
        elsewhere.start()


@pytest.mark.parametrize("file", ["eu-west4.yaml", "manual.yaml", "mixed.yaml"])
def test_a_cluster_elsewhere_can_be_simulated_here(file: str) -> None:
    """The same configuration runs on this machine; nothing has happened before `start`."""
    config = load_config(EXAMPLES / file)
    assert not ClusterManager(config).is_local
    here = ClusterManager(make_local_config(config, "here"))
    assert here.is_local
    with pytest.raises(RuntimeError, match=r"call ClusterManager\.start\(\) first"):
        _ = here.controller
    here.stop()


@pytest.mark.long
def test_a_cluster_is_there_for_the_block_and_gone_after_it_however_that_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its address answers; a second of its name is refused; an exception in the block leaves no
    directory and no process.
    """
    monkeypatch.setenv("IRIS_STATE_DIR", str(tmp_path))
    told: list[str] = []
    port = free_ports()[0]
    config = local_config("block")
    config = config.model_copy(
        update={"controller": Controller(local=LocalControllerConfig(port=port))}
    )
    manager = ClusterManager(config, ephemeral=True, progress=told.append)
    with pytest.raises(KeyError), manager.connect() as address:  # noqa: PT012
        controller = manager.controller
        assert address == f"127.0.0.1:{port}"  # the port that the configuration chooses
        assert controller.discover() == address
        status = controller.status()
        assert (status.running, status.healthy, status.address) == (True, True, address)
        assert "serves" in (controller.fetch_startup_logs() or "")
        with pytest.raises(Rejected, match="runs already"):
            ClusterManager(local_config("block")).start()
        raise KeyError
    assert controller.discover() is None
    assert not controller.status().running
    assert controller.fetch_startup_logs() is None
    assert not list(tmp_path.glob("clusters/*"))
    assert told[0].startswith("deleting 1 slice(s): local-cpu-")
    with pytest.raises(RuntimeError):
        _ = manager.controller


def test_a_cluster_whose_configuration_is_gone_can_still_be_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To stop a cluster, nobody needs the file that it was started with."""
    monkeypatch.setenv("IRIS_STATE_DIR", str(tmp_path))
    plan = asyncio.run(LocalController.of("never").plan_stop())
    assert (plan.name, plan.running, plan.slices, plan.processes) == ("never", False, (), ())


def test_a_slice_is_meant_by_its_id_or_by_enough_of_the_beginning() -> None:
    """A whole id means itself, even if others begin with it; what is not clear is answered with
    what there is.
    """
    ids = ["tpu-1", "tpu-12", "tpu-2", "cpu-7", "tpu-1"]
    assert [matching_id(named, ids) for named in ("tpu-1", "tpu-12", "c")] == [
        "tpu-1",
        "tpu-12",
        "cpu-7",
    ]
    with pytest.raises(
        NotFound,
        match="tpu is the beginning of 3 slices' ids: tpu-1, tpu-12, tpu-2; give more of the id",
    ):
        matching_id("tpu", ids)
    with pytest.raises(NotFound, match=r"there is no slice ctu-7; did you mean cpu-7,"):
        matching_id("ctu-7", ids)
    with pytest.raises(NotFound, match="there is no slice xyz; `iris slice list` lists them"):
        matching_id("xyz", [])


class Cloud:
    """Machines that go when they have been asked so many times to, or never; refuses now and
    then.
    """

    def __init__(
        self,
        *slices: str,
        asks: int = 2,
        unreachable: dict[str, str] | None = None,
        troubles: Sequence[Exception] = (),
    ) -> None:
        self.left = dict.fromkeys(slices, asks)
        self.unreachable = unreachable or {}
        self._calls = 0
        self._troubles = list(troubles)

    async def list_slices(self) -> FleetListing:
        if self._troubles:
            raise self._troubles.pop()
        seen = (
            SliceObservation(slice_id=each, group="g", zone="z", state=MachineState.ACTIVE)
            for each in self.left
        )
        return FleetListing(slices=tuple(seen), unreachable=self.unreachable)

    async def delete_slice(self, slice_id: str, zone: str) -> DeleteResult:
        self._calls += 1
        if self._calls % 3 == 0:
            raise RateLimited("slowly") if self._calls % 2 else Unavailable("no answer")
        self.left[slice_id] -= 1
        if self.left[slice_id]:
            return DeleteResult.GOING
        del self.left[slice_id]
        return DeleteResult.GONE


async def test_machines_are_deleted_until_the_platform_says_that_they_are_gone() -> None:
    """Whatever it refuses meanwhile is asked again."""
    cloud = Cloud("a", "b", "c")
    assert await delete_all(cloud, SOON) == ["a", "b", "c"]
    assert not cloud.left


async def test_machines_that_do_not_go_are_named_and_so_are_zones_that_cannot_be_seen() -> None:
    """A stop that says all is well while something still costs money would be worse than one that
    fails.
    """
    with pytest.raises(IrisError, match=r"2 slice\(s\) still exist.*: a, b; run the command again"):
        await delete_all(Cloud("a", "b", asks=1_000), timedelta(seconds=0.5))
    with pytest.raises(
        IrisError, match=r"slices were not deleted: west-b \(timeout\); run the command again"
    ):
        await delete_all(Cloud("a", unreachable={"west-b": "timeout"}), timedelta(seconds=0.5))


async def test_a_list_that_fails_once_is_asked_for_again() -> None:
    """A stop that ends there would leave what costs money, for one answer that was lost."""
    told: list[str] = []
    cloud = Cloud("a", "b", troubles=[RateLimited("slowly"), Unavailable("no answer")])
    assert await delete_all(cloud, SOON, told.append) == ["a", "b"]
    assert told == [
        f"zones that cannot be listed: all zones ({why}); trying again"
        for why in ("no answer", "slowly")
    ]
