"""Registers Iris' search attributes with the Temporal service, or says how an operator registers
them.

The dev server accepts new search attributes at once. Other services differ in two ways: each server
reads the attributes of a namespace only every few seconds, and a service may refuse the calls of
its operators, which Temporal Cloud does not have at all.
"""

from datetime import timedelta

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import (
    AddSearchAttributesRequest,
    ListSearchAttributesRequest,
)
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from iris.model import names
from iris.model.errors import Rejected
from iris.retrying import retry

#: The time limit within which the Temporal service accepts new search attributes. Servers read them
#: every two seconds, and servers before version 1.31 every ten seconds.
ACCEPTED_WITHIN = timedelta(minutes=1)
_TYPES = {
    "Keyword": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
    "KeywordList": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD_LIST,
}
_REFUSALS = (
    RPCStatusCode.PERMISSION_DENIED,
    RPCStatusCode.UNAUTHENTICATED,
    RPCStatusCode.UNIMPLEMENTED,
)


def search_attribute_types() -> dict[str, "IndexedValueType.ValueType"]:
    """Returns the types of Iris' search attributes, as a request has them."""
    return {name: _TYPES[kind] for name, kind in names.SEARCH_ATTRIBUTES.items()}


async def register_search_attributes(client: Client) -> None:
    """Registers the search attributes that the namespace does not have yet, and waits until the
    service accepts them.

    Raises:
        Rejected: they are missing, and this client may not register them.
        RPCError: the service does not answer, or does not accept them within a minute.
    """
    try:
        await _list_by_all(client)
    except RPCError as error:
        if not _are_unknown(error):
            raise
    else:
        return
    try:
        await _register_missing(client)
    except RPCError as error:
        if error.status in _REFUSALS:
            raise Rejected(_remedy(client.namespace, str(error))) from None
        if error.status is not RPCStatusCode.ALREADY_EXISTS:  # another control plane was faster
            raise
    await retry(_are_unknown, every=0.5, timeout=ACCEPTED_WITHIN)(_list_by_all)(client)


async def _list_by_all(client: Client) -> None:
    """Uses the search attributes as lists do, which needs no permission beyond those.

    Raises:
        RPCError: INVALID_ARGUMENT: the service does not know them all, or not yet.
    """
    await client.count_workflows(" AND ".join(f"{name} = ''" for name in names.SEARCH_ATTRIBUTES))


def _are_unknown(error: Exception) -> bool:
    return isinstance(error, RPCError) and error.status is RPCStatusCode.INVALID_ARGUMENT


async def _register_missing(client: Client) -> None:
    service = client.operator_service
    listed = await service.list_search_attributes(
        ListSearchAttributesRequest(namespace=client.namespace)
    )
    missing = {
        name: kind
        for name, kind in search_attribute_types().items()
        if name not in listed.custom_attributes
    }
    if missing:
        await service.add_search_attributes(
            AddSearchAttributesRequest(namespace=client.namespace, search_attributes=missing)
        )


def _remedy(namespace: str, refusal: str) -> str:
    options = " ".join(
        f"--name {name} --type {kind}" for name, kind in names.SEARCH_ATTRIBUTES.items()
    )
    return (
        f"namespace {namespace} lacks search attributes of Iris, and the service does not let this"
        f" client register them ({refusal}); register them once with: temporal operator"
        f" search-attribute create --namespace {namespace} {options}"
    )
