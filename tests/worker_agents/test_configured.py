"""A configuration that is written anew while its cluster runs: by hand, or as the metadata of the
control plane's machine.
"""

import asyncio
import functools
import os
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from pathlib import Path

import pytest
from temporalio.client import Client, Interceptor, OutboundInterceptor, SignalWorkflowInput
from temporalio.service import RPCError, RPCStatusCode

from iris.config import ClusterConfig
from iris.model.errors import InvalidValue
from iris.platforms.base import Platform
from iris.platforms.gcp.labels import CONFIG_KEY
from iris.worker_agents.control_plane.config_watcher import ConfigFile, CurrentPlatform, platform_of
from iris.worker_agents.control_plane.gce_controller import follow
from iris.worker_agents.control_plane.serve import ControlPlaneOptions, Planners
from iris.worker_agents.host.metadata import Metadata
from tests.builders import NOON
from tests.fakes.metadata import FakeMetadata
from tests.fakes.platform.platform import FakePlatform
from tests.fleet_harness import FleetCluster
from tests.fleet_played import TenantNotifier
from tests.harness import dev_server_cluster
from tests.platforms.worlds import until, wanted

ATTRIBUTE = f"instance/attributes/{CONFIG_KEY}"


def written(directory: Path, group: str, *, name: str = "trial", at: int = 1) -> Path:
    """The configuration of a cluster with this group, as if it had been written at that second."""
    file = directory / "config.yaml"
    file.write_text(text_of(group, name))
    os.utime(file, (at, at))
    return file


def text_of(group: str, name: str = "trial", platform: str = "local") -> str:
    return (
        f"name: {name}\nplatform: {{{platform}: {{}}}}\nscale_groups: {{{group}: {{type:"
        " local_vm}}\n"
    )


def local_platform(directory: Path) -> Callable[[ClusterConfig, str], Platform]:
    return functools.partial(platform_of, machines=directory)


# -- by hand
# --------------------------------------------------------------------------------------------------


def test_the_platform_is_that_of_the_configuration_that_is_written_now(tmp_path: Path) -> None:
    """Another one may have other zones and images."""
    platform = CurrentPlatform(ConfigFile(written(tmp_path, "first")), local_platform(tmp_path))
    before = platform.now
    assert list(platform.renew().scale_groups) == ["first"]
    assert platform.now is before

    written(tmp_path, "second", at=2)

    assert list(platform.renew().scale_groups) == ["second"]
    assert platform.now is not before


async def test_a_slice_is_created_with_the_configuration_that_is_written_now(
    tmp_path: Path,
) -> None:
    """The planners get a reload at once. With the old list of machines, one that leaves could be
    leased again.
    """
    pools: dict[str, FakePlatform] = {}

    async def noon() -> datetime:
        return NOON

    def make(config: ClusterConfig, text: str) -> Platform:
        (group,) = config.scale_groups
        return pools.setdefault(group, FakePlatform(noon, "dev"))

    platform = CurrentPlatform(ConfigFile(written(tmp_path, "first")), make)
    written(tmp_path, "second", at=2)

    await platform.create_slice(wanted())

    assert [len((await pools[each].list_slices()).slices) for each in ("first", "second")] == [0, 1]


@pytest.mark.parametrize(
    "text",
    [
        "name: [",
        text_of("second").replace("type", "kind"),
        text_of("second", name="another"),
        text_of("second", platform="manual").replace("local_vm", "manual_vm, hosts: [10.0.0.1]"),
    ],
    ids=["no YAML", "a key that is not known", "of another cluster", "for another platform"],
)
def test_a_configuration_that_this_cluster_cannot_use_changes_nothing(
    tmp_path: Path, text: str
) -> None:
    """Jobs run on, and the next one counts again."""
    file = written(tmp_path, "first")
    platform = CurrentPlatform(ConfigFile(file), local_platform(tmp_path))
    before = platform.now

    file.write_text(text)

    assert list(platform.renew().scale_groups) == ["first"]
    assert platform.now is before
    written(tmp_path, "second", at=3)
    assert list(platform.renew().scale_groups) == ["second"]


def test_a_configuration_whose_platform_cannot_be_had_changes_nothing(tmp_path: Path) -> None:
    """What one control plane cannot serve is no reason for it to end."""

    def make(config: ClusterConfig, text: str) -> Platform:
        if "second" in text:
            raise InvalidValue("platform", "local", "cannot be served", "write another")
        return platform_of(config, text, machines=tmp_path)

    platform = CurrentPlatform(ConfigFile(written(tmp_path, "first")), make)
    before = platform.now

    written(tmp_path, "second", at=2)

    assert list(platform.renew().scale_groups) == ["first"]
    assert platform.now is before


class FailsOnce(Interceptor):
    """The service does not answer the first time that something is said to the workflow of this
    name.
    """

    def __init__(self, signal: str) -> None:
        self.signal = signal

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        fault = self

        class Faulty(OutboundInterceptor):
            async def signal_workflow(self, input: SignalWorkflowInput) -> None:
                if input.signal == fault.signal:
                    fault.signal = ""
                    raise RPCError("unavailable", RPCStatusCode.UNAVAILABLE, b"")
                await super().signal_workflow(input)

        return Faulty(next)


@pytest.fixture
async def cluster() -> AsyncIterator[FleetCluster]:
    async with dev_server_cluster(kind=FleetCluster, notifier=TenantNotifier) as cluster:
        yield cluster


@pytest.mark.long
@pytest.mark.parametrize("lost", ["deliver", "configure"])
async def test_planners_that_could_not_be_told_of_a_configuration_are_told_later(
    cluster: FleetCluster, tmp_path: Path, lost: str
) -> None:
    """It is written once, by somebody who has gone, and nobody would say it again."""
    options = ControlPlaneOptions(address="", namespace="default", cluster=cluster.name, store="")
    platform = CurrentPlatform(ConfigFile(written(tmp_path, "first")), local_platform(tmp_path))
    await Planners(cluster.client, options, platform).check()
    planners = Planners(faulty(cluster.client, lost), options, platform)
    written(tmp_path, "second", at=2)

    with pytest.raises(RPCError):
        await planners.check()
    await planners.check()

    async def known() -> bool:
        settings = (await cluster.scaling()).settings
        return settings is not None and [group.name for group in settings.groups] == ["second"]

    await cluster.until(known)


def faulty(client: Client, signal: str) -> Client:
    return Client(**{**client.config(), "interceptors": [FailsOnce(signal)]})


# -- as metadata
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad",
    [
        "name: [",
        "name: trial\nplatform: {local: {}}\nof_next_year: {}\n",
        text_of("second", name="another"),
    ],
)
async def test_only_a_configuration_that_can_be_used_replaces_the_one_that_is(
    tmp_path: Path, bad: str
) -> None:
    """Whoever reads the file next may be a control plane that has just been started, and has
    nothing else.
    """
    file = written(tmp_path, "first")
    with FakeMetadata().started() as google:
        google.put(ATTRIBUTE, bad)
        following = asyncio.create_task(follow(file, file.read_text(), Metadata(google.url)))
        try:
            await asyncio.to_thread(google.wait_for_question, ATTRIBUTE)
            assert file.read_text() == text_of("first")

            google.put(ATTRIBUTE, text_of("second"))

            await until(lambda: file.read_text() != text_of("first"))
            assert file.read_text() == text_of("second")
        finally:
            following.cancel()
