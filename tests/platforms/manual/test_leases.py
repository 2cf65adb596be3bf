"""The command line of an agent on a machine over SSH."""

import shlex
from pathlib import Path

import pytest

from iris.model.host.resources import parse_device
from iris.platforms.manual.leases import agent_command
from iris.platforms.manual.settings import HostAccess, ManualSettings
from tests.builders import some
from tests.platforms.worlds import MANUAL_KIND, a_group, wanted

HOST = HostAccess(address="10.0.0.11", user="iris")


@pytest.mark.parametrize(
    ("device", "option"),
    [("gpu:H100:8", ["--device=gpu:H100:8"]), ("tpu:v5litepod-4:4", []), ("cpu", [])],
)
def test_an_agent_is_told_which_gpus_its_machine_should_have(
    device: str, option: list[str]
) -> None:
    """After a reboot one may be missing. An agent that is not told offers the others, and no person
    learns of it.
    """
    group = a_group(**MANUAL_KIND).model_copy(
        update={"resources": some().model_copy(update={"device": parse_device(device)})}
    )
    settings = ManualSettings(
        cluster="dev", uid="uid", hosts={}, zones={}, known_hosts=Path("/nowhere")
    )

    words = shlex.split(agent_command(settings, HOST, wanted(group=group), "127.0.0.1:7233"))

    assert [word for word in words if word.startswith("--device")] == option
