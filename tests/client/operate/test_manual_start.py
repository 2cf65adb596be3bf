"""The start of a cluster of machines over SSH, while its control plane is busy with them."""

from types import SimpleNamespace
from typing import Any

import pytest

from iris.client.client import AsyncIrisClient
from iris.client.operate.manual import start
from iris.model.errors import Unreachable
from tests.builders import a_host

ONE_HOST: Any = SimpleNamespace(
    name="lab", scale_groups={"machines": SimpleNamespace(min_slices=1)}
)


class Busy:
    """A cluster whose control plane does not answer the first questions."""

    def __init__(self, silent: int) -> None:
        self.silent = silent
        self.hosts = self
        self.autoscaler = self

    async def list(self) -> list[Any]:
        self.silent -= 1
        if self.silent >= 0:
            raise Unreachable("the control plane has not answered within 10 s")
        return [SimpleNamespace(host=a_host())]

    async def polls(self, host: Any) -> bool:
        return True


async def waited(monkeypatch: pytest.MonkeyPatch, cluster: Busy) -> list[str]:
    """What the user is told."""

    async def connect(name: str) -> Busy:
        return cluster

    monkeypatch.setattr(AsyncIrisClient, "connect", connect)
    monkeypatch.setattr(start, "POLL_INTERVAL", 0)
    told: list[str] = []
    await start.wait_for_hosts(ONE_HOST, told.append)
    return told


async def test_a_start_goes_on_after_questions_that_were_not_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The cluster comes up, and its user is told so instead of to try again."""
    assert await waited(monkeypatch, Busy(silent=2)) == ["1 of 1 hosts take work"]


async def test_a_start_does_not_wait_for_ever_for_a_control_plane_that_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the control plane did not say is the error then."""
    monkeypatch.setattr(start, "HOSTS_TIMEOUT", -start.HOSTS_TIMEOUT)
    with pytest.raises(Unreachable, match="has not answered"):
        await waited(monkeypatch, Busy(silent=1))
