"""Connections send tokens to the service that an identity is for, and to no other; they renew them;
and a refusal says who was refused.
"""

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from iris.access.keys import from_base64url
from iris.access.tokens import claims_of, private_key, sign_delegation, sign_token
from iris.client.access import selection
from iris.client.access.identity_file import Identity, new_identity, write_identity
from iris.client.access.selection import (
    host_tokens,
    sign_in,
    slice_delegation,
    token_source,
    tokens_of,
)
from iris.client.access.token_interface import Token
from iris.client.access.token_sources import new_job_identity
from iris.client.connect import rpc
from iris.client.connect.clusters import ClusterRecord
from iris.client.connect.connection import connect
from iris.client.connect.identity import current_user
from iris.client.connect.paths import identity_path
from iris.client.connect.rpc import Connection
from iris.model.errors import InvalidValue, NotAllowed, Rejected
from iris.model.slice.keys import public_key
from tests.grpc_service import served

FAR = "temporal.lab.example:7233"
SLICE_KEY = "07" * 32


class Service(grpc.GenericRpcHandler):
    """A service that keeps the tokens of all requests, and refuses all but the first of a client
    with this code.
    """

    def __init__(self) -> None:
        self.address = ""
        self.code = grpc.StatusCode.PERMISSION_DENIED
        #: Whether it answers the first request of a client.
        self.open = True
        #: The tokens, in order; empty for a request without one.
        self.tokens: list[str] = []

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        headers = {str(key): str(value) for key, value in details.invocation_metadata}
        self.tokens.append(headers.get("authorization", "").removeprefix("Bearer "))

        async def answer(request: bytes, context: grpc.aio.ServicerContext) -> bytes:
            if not self.open or not details.method.endswith("GetSystemInfo"):
                await context.abort(self.code, "ada (user) may not do this")
            return b""

        return grpc.unary_unary_rpc_method_handler(answer)


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    handler = Service()
    async with served(handler) as handler.address:
        yield handler


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """A machine without an identity, of a user without variables."""
    monkeypatch.setenv("IRIS_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(tmp_path / "temporal.toml"))
    for name in ("IRIS_IDENTITY", "IRIS_USER", "IRIS_TOKEN_COMMAND", "TEMPORAL_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def is_ada(*addresses: str) -> Identity:
    """Gives this machine the identity of ada for these addresses of the cluster `lab`."""
    identity = new_identity("ada")
    for address in addresses:
        identity = identity.with_cluster("lab", address)
    write_identity(identity_path(), identity)
    return identity


async def test_the_service_that_the_identity_is_for_gets_a_token_of_its_cluster(
    service: Service,
) -> None:
    """Without it the user could not work there."""
    is_ada(FAR, service.address)
    await connect(service.address)

    claims = claims_of(service.tokens[0])
    assert (claims["sub"], claims["aud"]) == ("ada", "lab")


@pytest.mark.parametrize("addresses", [(), (FAR,)])
async def test_another_service_gets_no_token(service: Service, addresses: tuple[str, ...]) -> None:
    """Anybody can ask a colleague to look at `iris --cluster ADDRESS jobs`, and could use the
    token at the real cluster.
    """
    is_ada(*addresses)
    await connect(service.address)

    assert set(service.tokens) == {""}


async def test_a_token_is_not_sent_without_tls_to_another_machine() -> None:
    """Others in the network could use it. Without a setting, TLS is on."""
    is_ada(FAR)
    with pytest.raises(Rejected, match="without TLS"):
        await sign_in(FAR, {"tls": False})

    settings: dict[str, object] = {}
    await sign_in(FAR, settings)
    assert settings.get("tls", True) is not False


async def test_the_token_of_a_client_is_renewed_while_the_client_is_in_use(
    service: Service, machine: pytest.MonkeyPatch
) -> None:
    """Control planes, agents and long commands outlive each token."""
    machine.setattr(selection, "CHECK_INTERVAL", timedelta(seconds=0.01))

    class Numbered:
        name = "ada"
        made = 0

        def token(self) -> Token:
            self.made += 1
            return Token(f"token-{self.made}", time.time() if self.made < 3 else 2e10)

    with tokens_of(Numbered()):
        client = await connect(service.address)
    await calls_until(client, service, "token-3")

    assert service.tokens[0] == "token-1"


async def calls_until(client: Client, service: Service, token: str) -> None:
    """Calls the service until it has got this token."""
    request = DescribeNamespaceRequest(namespace="default")
    async with asyncio.timeout(30):
        while token not in service.tokens:
            with contextlib.suppress(RPCError):
                await client.workflow_service.describe_namespace(request)


async def test_a_source_that_fails_for_a_while_is_asked_again(
    service: Service, machine: pytest.MonkeyPatch
) -> None:
    """The command of another service's tokens needs that service."""
    machine.setattr(selection, "CHECK_INTERVAL", timedelta(seconds=0.01))

    class Failing:
        name = "ada"
        made = 0

        def token(self) -> Token:
            self.made += 1
            if self.made in (2, 3):
                raise InvalidValue("IRIS_TOKEN_COMMAND", "x", "cannot be run", "wait")
            return Token(f"token-{self.made}", time.time() if self.made < 4 else 2e10)

    with tokens_of(Failing()):
        client = await connect(service.address)
    await calls_until(client, service, "token-4")

    assert client.api_key == "token-4"


def test_the_name_of_the_identity_is_the_user_of_new_jobs(machine: pytest.MonkeyPatch) -> None:
    """The servers accept jobs of that user only."""
    machine.setattr("getpass.getuser", lambda: "alice")
    assert current_user() == "alice"
    is_ada(FAR)
    assert current_user() == "ada"


def test_another_user_than_that_of_the_identity_is_an_error_for_its_clusters_only(
    machine: pytest.MonkeyPatch,
) -> None:
    """The servers would refuse each call, with texts about jobs. A cluster without identities
    takes any name.
    """
    is_ada(FAR)
    machine.setenv("IRIS_USER", "bob")

    with pytest.raises(InvalidValue, match="IRIS_USER: 'bob' is not the name of your identity"):
        token_source(FAR)
    assert token_source("127.0.0.1:7233") is None
    assert current_user() == "bob"


async def test_a_refusal_says_who_was_refused_what_and_what_to_do(service: Service) -> None:
    """A PERMISSION_DENIED of gRPC tells a user nothing."""
    is_ada(service.address)
    refusal = await refused_call(service)

    assert f"the service at {service.address} refuses ada: ada (user) may not do this" in refusal
    assert "iris whoami" in refusal


async def test_a_service_that_refuses_a_client_at_once_says_the_same(service: Service) -> None:
    """Servers with a policy refuse the first request of a stranger, which opens the connection."""
    service.code, service.open = grpc.StatusCode.UNAUTHENTICATED, False
    with pytest.raises(Rejected, match=f"iris user key --cluster {service.address}/NAME"):
        await connect(service.address)
    is_ada(service.address)
    with pytest.raises(NotAllowed, match=r"refuses ada: ada .user. may not do this"):
        await connect(service.address)


async def test_a_refusal_without_an_identity_says_how_to_make_one(service: Service) -> None:
    """The first command of a new user is refused."""
    service.code = grpc.StatusCode.UNAUTHENTICATED

    assert f"iris user key --cluster {service.address}/NAME" in await refused_call(service)


async def refused_call(service: Service) -> str:
    client = await connect(service.address)
    record = ClusterRecord(name="lab", address=service.address, store="memory://")
    with pytest.raises(Rejected) as error:
        await Connection(client, record).is_running("lab/job/bob/train")
    return str(error.value)


async def test_a_wait_survives_a_token_that_has_just_expired_and_no_longer_refusal(
    service: Service, machine: pytest.MonkeyPatch
) -> None:
    """A laptop was asleep: its token is renewed within seconds after it wakes up."""
    is_ada(service.address)
    record = ClusterRecord(name="lab", address=service.address, store="memory://")
    connection = Connection(await connect(service.address), record)
    refused = RPCError("the token has expired", RPCStatusCode.UNAUTHENTICATED, b"")
    assert connection.lasting_refusal(refused) is None
    machine.setattr(rpc, "CHECK_INTERVAL", timedelta())

    assert isinstance(connection.lasting_refusal(refused), Rejected)
    away = RPCError("no connection", RPCStatusCode.UNAVAILABLE, b"")
    assert connection.lasting_refusal(away) is None


async def test_a_host_signs_with_the_key_of_its_slice(service: Service) -> None:
    """The policy does not name hosts that a control plane creates."""
    public = private_key(bytes.fromhex(SLICE_KEY)).public
    control_plane = is_ada(service.address)
    delegation = sign_delegation(control_plane.key, "tpu-1", public, "lab")
    with tokens_of(host_tokens("tpu-1", SLICE_KEY, delegation)):
        await connect(service.address)

    assert claims_of(service.tokens[0])["sub"] == "host/tpu-1"
    assert host_tokens("tpu-1", SLICE_KEY, "") is None
    assert host_tokens("tpu-1", None, "") is None


def test_a_control_plane_names_the_keys_of_its_slices_if_it_has_an_identity() -> None:
    """Without identities, nothing is signed and nothing is sent."""
    public = private_key(bytes.fromhex(SLICE_KEY)).public
    hexadecimal = public_key(SLICE_KEY)
    assert slice_delegation(FAR, "tpu-1", hexadecimal) == ""
    is_ada(FAR)

    assert slice_delegation("127.0.0.1:1", "tpu-1", hexadecimal) == ""
    found = claims_of(slice_delegation(FAR, "tpu-1", hexadecimal))
    assert found["cnf"]["jwk"] == public.model_dump()


def test_a_file_that_others_can_read_is_refused() -> None:
    """Another user of the machine would be ada."""
    is_ada(FAR)
    assert identity_path().stat().st_mode & 0o777 == 0o600
    identity_path().chmod(0o644)

    with pytest.raises(InvalidValue, match="chmod 600"):
        token_source(FAR)


def test_an_error_in_the_file_does_not_show_the_key(machine: pytest.MonkeyPatch) -> None:
    """Errors end up in logs and in chats."""
    identity = is_ada(FAR)
    values = json.loads(identity_path().read_text())
    values["key"]["kty"] = "RSA"
    identity_path().write_text(json.dumps(values))

    with pytest.raises(InvalidValue, match=r"key\.kty is not valid") as error:
        current_user()
    assert identity.key.d not in str(error.value)


# -- tokens of a job


def test_the_identity_of_a_job_signs_for_the_job_at_the_address_of_its_cluster_only(
    machine: pytest.MonkeyPatch,
) -> None:
    """A program may talk to other services, too."""
    ada = is_ada(FAR)
    value = new_job_identity("ada/top", FAR).decode()
    machine.setenv("IRIS_JOB_IDENTITY", value)
    machine.setenv("IRIS_CLUSTER_ADDRESS", f"{FAR}/lab")
    machine.setenv("IRIS_USER", "ada")
    source = token_source(FAR)
    assert source is not None

    token = source.token().text
    assert (claims_of(token)["sub"], claims_of(token)["aud"]) == ("job/ada/top", "lab")
    delegation = header_of(token)["iris_delegation"]
    assert header_of(delegation)["kid"] == ada.key.id
    assert claims_of(delegation)["role"] == "job"
    assert claims_of(delegation)["cnf"]["jwk"]["x"] != ada.key.x
    assert ada.key.d not in value
    assert token_source("other.example:7233") is None


def header_of(token: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(from_base64url(token.partition(".")[0]))
    return found


def test_a_job_gets_no_identity_without_one_of_its_user() -> None:
    """The submission fails before the job starts."""
    with pytest.raises(Rejected, match=f"iris user key --cluster {FAR}/NAME"):
        new_job_identity("ada/top", FAR)


@pytest.mark.parametrize("value", ["x", "{}", '{"key": "AA", "delegation": "a.b.c"}'])
def test_a_malformed_identity_of_a_job_is_an_error_that_does_not_show_it(
    machine: pytest.MonkeyPatch, value: str
) -> None:
    """A program may set the variable by mistake."""
    machine.setenv("IRIS_JOB_IDENTITY", value)
    machine.setenv("IRIS_CLUSTER_ADDRESS", f"{FAR}/lab")

    with pytest.raises(InvalidValue) as error:
        token_source(FAR)
    assert value not in str(error.value)


# -- tokens of a command


def prints(path: Path, token: str, code: int = 0) -> str:
    """Returns a command that prints the token."""
    script = path / "token.py"
    script.write_text(f"import sys\nprint({token!r})\nsys.exit({code})\n")
    return f"{sys.executable} {script}"


def a_token(age: timedelta = timedelta()) -> str:
    return sign_token(private_key(bytes(32)), "ada@example.org", "lab", datetime.now(UTC) - age)


async def test_the_token_that_a_command_prints_is_sent_to_the_service_it_is_for(
    service: Service, machine: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An OpenID Connect provider issues it. Like an API key, it is for `TEMPORAL_ADDRESS`."""
    token = a_token()
    machine.setenv("IRIS_TOKEN_COMMAND", prints(tmp_path, token))
    await connect(service.address)
    assert set(service.tokens) == {""}

    machine.setenv("TEMPORAL_ADDRESS", service.address)
    await connect(service.address)
    assert service.tokens[-1] == token


@pytest.mark.parametrize(
    ("token", "code", "problem"),
    [
        ("", 0, "printed no token"),
        ("no.jwt", 0, "printed no token"),
        (a_token(), 3, "exited with 3"),
        (a_token(timedelta(hours=1)), 0, "has expired"),
    ],
)
def test_a_command_without_a_usable_token_is_an_error(
    machine: pytest.MonkeyPatch, tmp_path: Path, token: str, code: int, problem: str
) -> None:
    """Its own message would be that of the servers, about a token."""
    machine.setenv("TEMPORAL_ADDRESS", FAR)
    machine.setenv("IRIS_TOKEN_COMMAND", prints(tmp_path, token, code))
    source = token_source(FAR)
    assert source is not None

    with pytest.raises(InvalidValue, match=problem):
        source.token()
