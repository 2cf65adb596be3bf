"""The official server with Iris's access control on PostgreSQL, and people of each role."""

import asyncio
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import Message
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest
from temporalio.api.workflowservice.v1 import CountWorkflowExecutionsRequest
from temporalio.service import ConnectConfig, RPCError, RPCStatusCode, ServiceClient

from iris.model import names
from iris.retrying import retry
from tests.e2e.access.people import (
    NAMESPACE,
    Principal,
    of_job,
    of_slice,
    write_policy,
)
from tests.temporal_cluster import TemporalCluster, a_temporal_cluster

#: The longest wait for an answer. A long poll that is allowed takes it.
LIMIT = timedelta(seconds=3)
#: Tests list more often than people.
SETTINGS = {"activity.enableStandalone": True, "frontend.namespaceRPS.visibility": 1000}
DENIED = (RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNAUTHENTICATED)


@dataclass
class Service:
    """A Temporal service with a policy.

    Attributes:
        people: by a short name; `write_policy` writes those whose keys the policy has.
    """

    temporal: TemporalCluster
    directory: Path
    people: Mapping[str, Principal]
    _client: tuple[asyncio.AbstractEventLoop, ServiceClient] | None = None
    _tokens: dict[str, str] = field(default_factory=dict)

    def set_policy(self, **other: object) -> None:
        """Replaces fields of the policy. The server reads it within some seconds."""
        write_policy(self.directory / "policy.json", self.people.values(), **other)

    async def call(
        self, token: str, method: str, request: Message, metadata: Mapping[str, Any] | None = None
    ) -> Any:
        """Calls a method of the workflow service, or of the operator service if only that has it.

        Raises:
            RPCError: the service refuses it.
        """
        client = await self._connected()
        service: Any = (
            client.workflow_service
            if hasattr(client.workflow_service, method)
            else client.operator_service
        )
        authorization = {"authorization": f"Bearer {token}" if token else ""}
        return await getattr(service, method)(
            request, metadata={**authorization, **(metadata or {})}, timeout=LIMIT
        )

    async def who(
        self, who: str, method: str, request: Message, metadata: Mapping[str, Any] | None = None
    ) -> Any:
        """Calls a method as one of the people.

        Raises:
            RPCError: the service refuses it.
        """
        token = self._tokens.setdefault(who, self.people[who].token())
        return await self.call(token, method, request, metadata)

    async def refusal(
        self, who: str, method: str, request: Message, metadata: Mapping[str, Any] | None = None
    ) -> str:
        """Returns why one of the people may not make the call; empty: they may. What the service
        answers then is of no interest, so a long poll ends soon.
        """
        try:
            await self.who(who, method, request, metadata)
        except RPCError as error:
            missing = error.message.startswith("unknown method")
            return error.message if error.status in DENIED or missing else ""
        return ""

    async def _connected(self) -> ServiceClient:
        """Returns a client whose calls have other tokens than its connection."""
        loop = asyncio.get_running_loop()
        if self._client is None or self._client[0] is not loop:
            config = ConnectConfig(
                target_host=self.temporal.service.addresses[0],
                api_key=self.people["cp"].token(),
                tls=False,
            )
            self._client = loop, await ServiceClient.connect(config)
        return self._client[1]

    def audit(self) -> Sequence[Mapping[str, Any]]:
        """Returns the lines of the audit."""
        files = sorted((self.directory / "audit").glob("audit-*.jsonl"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def the_people() -> dict[str, Principal]:
    """Returns one or two of each role. The stolen key is that of a host of slice `h`."""
    control_plane = Principal("cp", "control-plane")
    ada = Principal("ada", "user")
    return {
        "cp": control_plane,
        "ada": ada,
        "bob": Principal("bob", "user"),
        "vera": Principal("vera", "viewer"),
        "olga": Principal("olga", "operator"),
        "stolen": Principal("host/h-w-0", "host", of_slice("h", control_plane)),
        "joined": Principal("host/own-w-0", "host"),
        "second": Principal("host/own-w-1", "host"),
        "job": Principal("job/ada/train", "job", of_job("ada/train", ada)),
    }


@contextmanager
def a_service() -> Iterator[Service]:
    """A server that runs. Its search attributes are registered, and no control plane serves it."""
    people = the_people()
    with tempfile.TemporaryDirectory(prefix="iris-access-") as directory:
        policy = write_policy(Path(directory) / "policy.json", people.values())
        with a_temporal_cluster(
            settings=SETTINGS,
            policy=policy,
            token=people["cp"].token(),
        ) as temporal:
            running = Service(temporal, Path(directory), people)
            asyncio.run(_register(running))
            yield running


@pytest.fixture(scope="package")
def service() -> Iterator[Service]:
    """A server for all tests that send single requests."""
    with a_service() as running:
        yield running


async def _register(service: Service) -> None:
    types = {
        name: IndexedValueType.Value(f"INDEXED_VALUE_TYPE_{_constant(kind)}")
        for name, kind in names.SEARCH_ATTRIBUTES.items()
    }
    request = AddSearchAttributesRequest(namespace=NAMESPACE, search_attributes=types)
    await service.who("cp", "add_search_attributes", request)
    count = CountWorkflowExecutionsRequest(namespace=NAMESPACE, query=f"{names.SA_TAGS} = 'x'")

    @retry(RPCError, every=0.2, timeout=timedelta(minutes=1))
    async def are_known() -> None:
        await service.who("cp", "count_workflow_executions", count)

    await are_known()


def _constant(kind: str) -> str:
    return {"Keyword": "KEYWORD", "KeywordList": "KEYWORD_LIST"}[kind]
