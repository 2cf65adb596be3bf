"""Search attributes on services that are not the dev server: accepted late, or registered by their
operators only.
"""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import (
    AddSearchAttributesRequest,
    ListSearchAttributesResponse,
)
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from iris.model import names
from iris.model.errors import Rejected
from iris.worker_agents.control_plane.search_attributes import register_search_attributes


class Service:
    """A Temporal service.

    Args:
        known: it accepts the search attributes from the beginning.
        refuses: how it answers the calls of operators; None: it serves them.
        late: how many lists it refuses after the registration.
    """

    namespace = "default"

    def __init__(
        self, *, known: bool = False, refuses: RPCStatusCode | None = None, late: int = 0
    ) -> None:
        self.operator_service = SimpleNamespace(
            list_search_attributes=self._list, add_search_attributes=self._add
        )
        self._known = known
        self._refuses = refuses
        self._late = late
        self.registered: dict[str, int] = {}

    async def count_workflows(self, query: str) -> None:
        assert all(name in query for name in names.SEARCH_ATTRIBUTES)
        if not self._known:
            raise RPCError("invalid query", RPCStatusCode.INVALID_ARGUMENT, b"")
        if self._late:
            self._late -= 1
            raise RPCError(
                "no mapping defined for search attribute", RPCStatusCode.INVALID_ARGUMENT, b""
            )

    async def _list(self, request: Any) -> ListSearchAttributesResponse:
        if self._refuses is not None:
            raise RPCError("Request unauthorized.", self._refuses, b"")
        return ListSearchAttributesResponse(custom_attributes={names.SA_USER: 2})

    async def _add(self, request: AddSearchAttributesRequest) -> None:
        self.registered.update(request.search_attributes)
        self._known = True

    @property
    def client(self) -> Client:
        return cast(Client, self)


async def test_missing_attributes_are_registered_and_awaited() -> None:
    """A server accepts them some seconds later; until then it refuses every workflow that has
    one.
    """
    service = Service(late=1)

    await register_search_attributes(service.client)

    assert sorted([*service.registered, names.SA_USER]) == sorted(names.SEARCH_ATTRIBUTES)
    assert service.registered[names.SA_STATE] == IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
    assert service.registered[names.SA_TAGS] == IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD_LIST
    await service.client.count_workflows(" ".join(names.SEARCH_ATTRIBUTES))


@pytest.mark.parametrize("refusal", [RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNIMPLEMENTED])
async def test_attributes_that_an_operator_registered_need_no_permission(
    refusal: RPCStatusCode,
) -> None:
    """As on Temporal Cloud: the control plane only uses them."""
    await register_search_attributes(Service(known=True, refuses=refusal).client)


@pytest.mark.parametrize("refusal", [RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNIMPLEMENTED])
async def test_a_refused_registration_says_what_an_operator_has_to_run(
    refusal: RPCStatusCode,
) -> None:
    """Otherwise the control plane would end with the service's own error again and again."""
    with pytest.raises(Rejected) as refused:
        await register_search_attributes(Service(refuses=refusal).client)

    command = (
        "temporal operator search-attribute create --namespace default --name IrisCluster --type"
        " Keyword"
    )
    assert command in str(refused.value)
    assert "--name IrisTags --type KeywordList" in str(refused.value)


async def test_a_service_that_does_not_answer_is_no_reason_to_register_anything() -> None:
    """The error passes to the caller."""
    service = Service()

    async def fails(query: str) -> None:
        raise RPCError("unavailable", RPCStatusCode.UNAVAILABLE, b"")

    service.count_workflows = fails  # type: ignore[method-assign]
    with pytest.raises(RPCError):
        await register_search_attributes(service.client)
    assert service.registered == {}
