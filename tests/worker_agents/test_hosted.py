"""A control plane on a machine of Google's: what it tells hosts of itself."""

from pathlib import Path

import pytest

from iris.model.errors import InvalidValue
from iris.worker_agents.control_plane.gce_controller import HostedOptions, own_address
from iris.worker_agents.host.metadata import Metadata
from tests.fakes.metadata import FakeMetadata


async def test_hosts_are_told_the_machines_address_in_the_network() -> None:
    """Its name they need not know: TPU VMs are machines of another project."""
    with FakeMetadata().started() as google:
        google.set(
            hostname="controller.europe-west4-b.c.my-project.internal",
            network_interfaces__0__ip="10.164.0.7\n",
        )

        assert await own_address(Metadata(google.url), 10000) == "10.164.0.7:10000"


def test_the_options_for_metrics_reach_the_control_plane(tmp_path: Path) -> None:
    """Zero closes a port that the configuration opens, so it is passed on, too."""
    options = HostedOptions(config=tmp_path, state_dir=tmp_path, port=10000)
    assert options.of_metrics == []
    given = options.model_copy(update={"metrics_port": 0, "metrics_address": "10.0.0.5"})
    assert given.of_metrics == ["--metrics-port=0", "--metrics-address=10.0.0.5"]


async def test_a_machine_that_does_not_know_its_address_has_to_be_told() -> None:
    """Hosts that were sent to no address would be paid for and never report."""
    with FakeMetadata().started() as google, pytest.raises(InvalidValue, match="add --advertise"):
        await own_address(Metadata(google.url), 10000)
    with pytest.raises(InvalidValue, match="add --advertise"):
        await own_address(None, 10000)
