"""A control plane on a machine of Google's: what it tells hosts of itself."""

import pytest

from iris.model.errors import InvalidValue
from iris.worker_agents.control_plane.gce_controller import own_address
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


async def test_a_machine_that_does_not_know_its_address_has_to_be_told() -> None:
    """Hosts that were sent to no address would be paid for and never report."""
    with FakeMetadata().started() as google, pytest.raises(InvalidValue, match="add --advertise"):
        await own_address(Metadata(google.url), 10000)
    with pytest.raises(InvalidValue, match="add --advertise"):
        await own_address(None, 10000)
