"""The platform that a control plane serves for a configuration."""

import asyncio

from iris.client.operate.platforms import create_platform
from iris.config import load_config

JOINED = """
name: lab
platform: {local: {}}
controller: {bundle_prefix: "file:///srv/iris", temporal: {address: "temporal.internal:7233"}}
"""
GROUPS = (
    "scale_groups: {cpu: {slice_template: {local: {}}, resources: {cpu: 1, ram: 1g, disk: 1g}}}\n"
)


def test_a_cluster_whose_machines_all_join_needs_no_directory_of_machines() -> None:
    """`docker/compose.yaml` serves it on any machine: nothing is ever requested there."""
    platform = create_platform(load_config(JOINED))

    assert asyncio.run(platform.list_slices()).slices == ()
