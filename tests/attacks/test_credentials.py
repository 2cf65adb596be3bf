"""Credentials in the user's environment reach the service that they are for, and no other."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from iris.client.connect.connection import connect
from iris.client.connect.credentials import credentials_for
from iris.client.connect.remote import discover
from iris.model.errors import Rejected
from tests.e2e.cluster import Cluster, a_home
from tests.grpc_service import served

KEY = "planted-key"
ELSEWHERE = "cloud.example:7233"


class Service(grpc.GenericRpcHandler):
    """A service that keeps the headers of all requests, and refuses everything but the first
    request of a client.
    """

    def __init__(self) -> None:
        self.address = ""
        self.headers: list[tuple[str, str]] = []

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        self.headers += [(str(key), str(value)) for key, value in details.invocation_metadata]

        async def answer(request: bytes, context: grpc.aio.ServicerContext) -> bytes:
            if not details.method.endswith("GetSystemInfo"):
                await context.abort(grpc.StatusCode.PERMISSION_DENIED, "Request unauthorized.")
            return b""

        return grpc.unary_unary_rpc_method_handler(answer)

    @property
    def received(self) -> str:
        return str(self.headers)


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    handler = Service()
    async with served(handler) as handler.address:
        yield handler


@pytest.fixture
def user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """A user whose file of profiles is missing, and who has an API key in a variable."""
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(tmp_path / "temporal.toml"))
    monkeypatch.setenv("TEMPORAL_API_KEY", KEY)
    monkeypatch.setenv("TEMPORAL_TLS", "false")  # this service has none
    return monkeypatch


def profile(tmp_path: Path, **settings: str) -> None:
    lines = [f'{key} = "{value}"' for key, value in settings.items()]
    (tmp_path / "temporal.toml").write_text(
        "\n".join(["[profile.default]", *lines, "[profile.default.tls]", "disabled = true"])
    )


@pytest.mark.parametrize("other", ["", ELSEWHERE])
async def test_a_service_that_an_address_names_does_not_receive_the_key_of_another(
    service: Service, user: pytest.MonkeyPatch, other: str
) -> None:
    """Anybody can ask a colleague to look at `iris --cluster ADDRESS jobs`."""
    user.setenv("TEMPORAL_ADDRESS", other)
    await connect(service.address)

    assert KEY not in service.received
    assert "user-agent" in service.received  # it was asked


async def test_the_service_that_the_key_is_for_receives_it(
    service: Service, user: pytest.MonkeyPatch
) -> None:
    """Without it the user could not work there."""
    user.setenv("TEMPORAL_ADDRESS", service.address)
    await connect(service.address)

    assert f"Bearer {KEY}" in service.received


async def test_the_key_of_a_profile_does_not_follow_an_address_in_a_variable(
    service: Service, user: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Temporal's own rules combine the two, and would send the key of one service to another."""
    profile(tmp_path, address=ELSEWHERE, api_key=KEY)
    user.delenv("TEMPORAL_API_KEY")
    user.setenv("TEMPORAL_ADDRESS", service.address)
    await connect(service.address)

    assert KEY not in service.received


async def test_the_key_of_a_profile_reaches_the_service_of_the_profile(
    service: Service, user: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The variables of the moment may be for another one."""
    profile(tmp_path, address=service.address, api_key="key-of-the-profile")
    user.setenv("TEMPORAL_ADDRESS", ELSEWHERE)
    await connect(service.address)

    assert "Bearer key-of-the-profile" in service.received
    assert KEY not in service.received


async def test_a_service_that_refuses_names_the_credentials_that_it_did_not_get(
    service: Service, user: pytest.MonkeyPatch
) -> None:
    """The user set them, and would search for the error elsewhere."""
    user.setenv("TEMPORAL_ADDRESS", ELSEWHERE)
    client = await connect(service.address)

    with pytest.raises(Rejected) as refused:
        await discover(client, service.address, None)
    assert f"TEMPORAL_API_KEY is not sent, because it is for {ELSEWHERE}" in str(refused.value)
    assert f"set TEMPORAL_ADDRESS (or the address of the profile) to {service.address}" in str(
        refused.value
    )
    assert KEY not in str(refused.value)


@pytest.mark.parametrize("content", ["[profile.default", ""])
def test_a_file_of_profiles_that_cannot_be_used_does_not_stop_work_elsewhere(
    tmp_path: Path, content: str
) -> None:
    """A cluster on this machine needs none."""
    (tmp_path / "temporal.toml").write_text(content)
    environment: dict[str, Any] = {
        "TEMPORAL_CONFIG_FILE": str(tmp_path / "temporal.toml"),
        "TEMPORAL_PROFILE": "missing",
    }
    credentials = credentials_for("127.0.0.1:1", environment)

    assert dict(credentials.settings) == {}
    assert "Temporal's configuration file cannot be used" in credentials.withheld


@pytest.mark.long
def test_a_local_cluster_works_with_credentials_for_another_service_in_the_environment(
    tmp_path: Path,
) -> None:
    """Its service has no TLS: with these settings, no command and no agent would connect."""
    profile(tmp_path, address=ELSEWHERE, api_key=KEY, namespace="far")
    theirs = {
        "TEMPORAL_CONFIG_FILE": str(tmp_path / "temporal.toml"),
        "TEMPORAL_API_KEY": KEY,
        "TEMPORAL_TLS": "true",
        "TEMPORAL_TLS_CLIENT_CERT_PATH": "/nonexistent",
    }
    with a_home() as home:
        cluster = Cluster(home, options=("--cpu", "2", "--memory", "2g", "--ephemeral"))
        try:
            cluster.iris(
                "cluster", "start", "--local", "-d", *cluster.options, within=240, **theirs
            )
            cluster.iris("submit", "-n", "one", "--", "true", **theirs)
            assert "one" in cluster.iris("jobs", "--all", **theirs).out
        finally:
            cluster.iris("cluster", "stop", "--yes", code=None)
            cluster.clear()
