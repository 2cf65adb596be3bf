"""The hosts of a slice that share a process are the same hosts as those with processes of their
own.
"""

from pathlib import Path

from iris.platforms.local import LocalPlatform, simulated_hosts
from iris.worker_agents.host.agent_options import AgentOptions
from iris.worker_agents.local.slice_agents import agents_of_slice
from tests.platforms.worlds import a_group, wanted


async def test_every_host_of_a_slice_offers_what_its_request_says(tmp_path: Path) -> None:
    """In a directory of its own, and with the settings that the process was started with."""
    group = a_group(hosts=8, attributes={"rack": 7, "share": 0.5, "text": "true"})
    request = wanted("dev-v5e-32-abc", group)
    await LocalPlatform(tmp_path).create_slice(request)
    started = AgentOptions(
        address="here:1", namespace="default", cluster="dev", store="file:///s", host_id="any", slice_id=request.slice_id,
        directory=tmp_path, simulated=True, umask=0o22,
    )  # fmt: skip
    agents = [*agents_of_slice(tmp_path / request.slice_id, started)]

    offered = [
        (agent.host_id, agent.host_address, agent.device, agent.attributes) for agent in agents
    ]
    hosts = simulated_hosts(request)
    assert offered == [
        (host.id, host.address, host.resources.device, host.attributes) for host in hosts
    ]
    assert {(agent.cpu_millis, agent.memory_bytes, agent.disk_bytes) for agent in agents} == {
        (group.offers.cpu_millis, group.offers.memory_bytes, group.offers.disk_bytes)
    }
    assert [agent.directory for agent in agents] == [
        tmp_path / request.slice_id / "hosts" / host.id for host in hosts
    ]
    assert {(agent.address, agent.slice_id, agent.umask, agent.image) for agent in agents} == {
        ("here:1", request.slice_id, 0o22, None)
    }
