"""How the platform for Google Cloud comes about, and how its calls are made."""

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from google.api_core import exceptions

from iris.config import load_config
from iris.errors import InvalidValue
from iris.platforms.factory import create_platform
from iris.platforms.gcp.clients import Calls, Clients, connect
from iris.platforms.gcp.errors import CallFailed
from iris.platforms.gcp.limits import Urgency
from iris.platforms.gcp.platform import GcpPlatform
from iris.platforms.gcp.settings import gcp_settings
from tests.platforms.gcp_requests import gcp

EXAMPLE = Path(__file__).parents[2] / "examples" / "eu-west4.yaml"
PLAIN = gcp(tpu_endpoint="grpc://127.0.0.1:1", compute_endpoint="http://127.0.0.1:1")


def test_a_configuration_for_google_cloud_makes_its_platform() -> None:
    """Without the cluster's uid nothing could be told apart, so nothing is made."""
    config = load_config(EXAMPLE)

    assert isinstance(create_platform(config, settings=gcp_settings(config, "u-1")), GcpPlatform)
    with pytest.raises(InvalidValue, match="gcp"):
        create_platform(config)


def test_a_command_that_needs_no_cloud_does_not_import_one() -> None:
    """Google's clients take a second, and `iris submit` is typed all day."""
    code = "import sys, iris.cli.main, iris.platforms.factory; print([each for each in sys.modules if 'google.cloud' in each])"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert said.strip() == "[]"


async def test_a_create_that_nobody_waits_for_any_more_ends_first() -> None:
    """Else the delete that comes after it would find nothing, and then it would make something."""
    calls, begun, go = Calls(PLAIN), threading.Event(), threading.Event()
    made: list[str] = []

    def create(to: Clients) -> None:
        begun.set()
        go.wait(10)
        made.append("slice")

    creating = asyncio.create_task(calls.make(Urgency.CREATE, create))
    await asyncio.to_thread(begun.wait, 10)
    creating.cancel()
    await asyncio.sleep(0)
    assert not creating.done()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await creating

    assert made == ["slice"]


async def test_what_a_call_raises_is_told_as_trouble_and_what_is_wrong_with_us_is_not() -> None:
    """A mistake in this code is not to be retried as if Google were away."""
    calls = Calls(PLAIN)

    def refused(to: Clients) -> None:
        raise exceptions.ServiceUnavailable("away")

    def mistaken(to: Clients) -> None:
        raise KeyError("name")

    with pytest.raises(CallFailed, match="away"):
        await calls.make(Urgency.LOOK, refused)
    with pytest.raises(KeyError):
        await calls.make(Urgency.LOOK, mistaken)


def test_plain_endpoints_need_no_credentials() -> None:
    """Whoever runs their own has none of Google's."""
    clients = connect(PLAIN)

    assert clients.tpu.transport.host == "127.0.0.1:1"


async def test_an_environment_without_credentials_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may be there in a minute, and then the clients are made."""
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere/key.json")
    calls = Calls(gcp())

    for _ in range(2):
        with pytest.raises(CallFailed, match="/nowhere/key"):
            await calls.make(Urgency.LOOK, lambda to: to.tpu.transport.kind)
