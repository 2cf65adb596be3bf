"""Who a caller is: tokens that are forged, expired, of another cluster, or of a revoked key."""

import asyncio
import time

import pytest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.service import RPCError, RPCStatusCode

from tests.e2e.access.conftest import Service
from tests.e2e.access.people import NAMESPACE, Principal, base64url, compact, of_job, of_slice

pytestmark = pytest.mark.production


async def whoami(service: Service, token: str) -> tuple[str, str] | str:
    """Returns who the server says the caller is, or why it does not accept the token."""
    try:
        answer = await service.call(
            token, "describe_namespace", DescribeNamespaceRequest(namespace=NAMESPACE)
        )
    except RPCError as error:
        if error.status is not RPCStatusCode.UNAUTHENTICATED:
            raise
        return error.message
    return answer.namespace_info.data["iris_name"], answer.namespace_info.data["iris_role"]


async def test_the_server_says_who_signed_the_token(service: Service) -> None:
    """Each kind of principal is recognised, by its own key and by a delegation."""
    found = {who: await whoami(service, each.token()) for who, each in service.people.items()}

    assert found == {who: (each.name, each.role) for who, each in service.people.items()}


async def test_tokens_that_prove_nothing_are_not_accepted(service: Service) -> None:
    """A token counts only if the policy's key has signed exactly this, for this cluster, lately."""
    ada, bob, cp = (service.people[who] for who in ("ada", "bob", "cp"))
    stranger = Principal("ada", "user")
    now = int(time.time())
    head, body, signature = ada.token().split(".")
    other_body = base64url(compact(ada.claims(sub="bob")))
    unsigned = base64url(compact({"alg": "none", "kid": ada.key_id}))
    hmac = base64url(compact({"alg": "HS256", "kid": ada.key_id}))
    wrong = {
        "": "no token",
        "rubbish": "not a signed JWT",
        f"{head}.{body}.": "signature is wrong",
        f"{unsigned}.{body}.": "not a signed JWT",
        f"{hmac}.{body}.{signature}": "not a signed JWT",
        f"{head}.{other_body}.{signature}": "signature is wrong",
        stranger.token(): "not in the policy",
        stranger.signed(ada.claims(), {"kid": ada.key_id}): "signature is wrong",
        ada.signed(bob.claims()): "key is another's",
        ada.signed(cp.claims()): "key is another's",
        ada.signed(ada.claims(iat=now - 900, exp=now - 300)): "expired",
        ada.signed(ada.claims(exp=now + 3600)): "more than 10m",
        ada.signed(ada.claims(exp=None)): "no exp",
        ada.signed(ada.claims(iat=now + 300, exp=now + 500)): "not valid yet",
        ada.signed(ada.claims(aud="other")): "for cluster other",
        ada.signed(ada.claims(iss="https://else.where")): "issuer is not in the policy",
        ada.signed(ada.claims(), {"crit": ["iris"], "iris": 1}): "signature is wrong",
    }

    answers = await asyncio.gather(*(whoami(service, token) for token in wrong))

    for answer, reason in zip(answers, wrong.values(), strict=True):
        assert isinstance(answer, str)
        assert reason in answer


async def test_a_delegation_gives_one_slice_or_one_job_to_one_key(service: Service) -> None:
    """Nobody widens a delegation, and nobody but a control plane, or a user for the own jobs,
    gives one.
    """
    ada, cp, joined = (service.people[who] for who in ("ada", "cp", "joined"))
    stranger = Principal("cp", "control-plane")
    other_key, _ = service.people["stolen"].header().values(), None
    wrong = [
        Principal("host/else", "host", of_slice("h", cp)),
        Principal("host/h-w-0", "host", of_slice("h", ada)),
        Principal("host/h-w-0", "host", of_slice("h", joined)),
        Principal("host/h-w-0", "host", of_slice("h", stranger)),
        Principal("host/h-w-0", "host", of_slice("h", cp, aud="other")),
        Principal("cp", "control-plane", of_slice("h", cp, role="control-plane")),
        Principal("olga", "operator", of_slice("h", cp, role="operator", sub="olga")),
        Principal("job/bob/train", "job", of_job("bob/train", ada)),
        Principal("job/ada/other", "job", of_job("ada/train", ada)),
        Principal("job/vera/x", "job", of_job("vera/x", service.people["vera"])),
        Principal("job/h-w-0/x", "job", of_job("h-w-0/x", joined)),
    ]

    for each in wrong:
        assert isinstance(await whoami(service, each.token()), str), each.name
    thief = Principal("host/h-w-0", "host")
    stolen = thief.signed(thief.claims(), {"iris_delegation": next(iter(other_key))})
    assert "for another key" in str(await whoami(service, stolen))


async def test_a_revoked_key_and_its_delegations_end_without_a_restart(service: Service) -> None:
    """The server reads the policy again; tokens that it has accepted before end with their key."""
    bob, stolen, job = (service.people[who] for who in ("bob", "stolen", "job"))
    revoked = [bob.key_id, stolen.key_id, service.people["ada"].key_id]
    tokens = [each.token() for each in (bob, stolen, job)]
    assert all([isinstance(await whoami(service, each), tuple) for each in tokens])

    service.set_policy(revoked=revoked)
    try:
        deadline = time.monotonic() + 20
        while any([isinstance(await whoami(service, each), tuple) for each in tokens]):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.2)
    finally:
        service.set_policy()
    deadline = time.monotonic() + 20
    while any([isinstance(await whoami(service, each), str) for each in tokens]):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.2)
