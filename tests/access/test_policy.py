"""The policy of a cluster: changes keep it valid, and errors name the field, the value and the
remedy.
"""

import json
from typing import Any

import pytest

from iris.access.policy import Policy, Principal, Role, parse_policy
from iris.access.tokens import private_key
from iris.config.errors import InvalidConfig
from iris.model.errors import InvalidValue, NotFound

KEYS = [private_key(bytes([number]) * 32).public for number in range(4)]
EMPTY = Policy(cluster="lab")


def ada(*keys: int, role: Role = Role.USER) -> Principal:
    return Principal(name="ada", role=role, keys=tuple(KEYS[number] for number in keys))


def problems(**changes: Any) -> list[str]:
    """Returns the problems of a policy with these fields."""
    values = json.loads(EMPTY.with_principal(ada(0)).to_json()) | changes
    with pytest.raises(InvalidConfig) as error:
        parse_policy(json.dumps(values), "access.json")
    return list(error.value.problems)


def test_a_policy_is_read_as_it_is_written() -> None:
    """`iris user` rewrites the file at each change."""
    policy = EMPTY.with_principal(ada(0)).with_principal(
        Principal(name="host/h1", role=Role.HOST, keys=(KEYS[1],), slice="s1")
    )

    assert parse_policy(policy.to_json(), "access.json") == policy


def test_the_file_has_what_the_servers_read() -> None:
    """The servers are another program, in another language."""
    values = json.loads(EMPTY.with_principal(ada(0)).to_json())

    assert values["version"] == 1
    assert values["cluster"] == "lab"
    assert values["principals"] == [
        {
            "name": "ada",
            "role": "user",
            "keys": [{"kty": "OKP", "crv": "Ed25519", "x": KEYS[0].x}],
        }
    ]
    assert values["revoked"] == []


def test_a_further_key_is_added_and_a_role_is_changed() -> None:
    """A person has several machines, and becomes an operator some day."""
    policy = EMPTY.with_principal(ada(0)).with_principal(ada(1))
    policy = policy.with_principal(ada(role=Role.OPERATOR))

    assert policy.find("ada") == ada(0, 1, role=Role.OPERATOR)


def test_somebody_who_is_revoked_is_gone_and_the_keys_cannot_come_back() -> None:
    """A stolen key must not be added again by mistake, and its delegations end."""
    policy = EMPTY.with_principal(ada(0, 1)).without("ada")

    assert policy.principals == ()
    assert set(policy.revoked) == {KEYS[0].id, KEYS[1].id}
    with pytest.raises(InvalidValue, match="was revoked"):
        policy.with_principal(ada(0))


def test_one_key_of_several_is_revoked() -> None:
    """A laptop was lost; the workstation still works."""
    policy = EMPTY.with_principal(ada(0, 1)).without("ada", KEYS[0].id[:12])

    assert policy.find("ada") == ada(1)
    assert policy.revoked == (KEYS[0].id,)


def test_people_of_other_services_are_revoked_by_their_name() -> None:
    """Otherwise somebody would still sign in with a certificate or a token."""
    mapped = {"name": "bob", "role": "user"}
    issuer = {
        "issuer": "https://id.example",
        "jwks_uri": "https://id.example/keys",
        "audience": "iris",
        "users": {"bob@example.org": mapped},
    }
    values = json.loads(EMPTY.to_json())
    values |= {"certificates": {"bob.example": mapped}, "issuers": [issuer]}
    policy = parse_policy(json.dumps(values), "access.json").without("bob")

    assert policy.certificates == {}
    assert policy.issuers[0].users == {}


@pytest.mark.parametrize(("name", "key"), [("bob", ""), ("ada", "zzz")])
def test_an_unknown_name_or_key_is_not_revoked(name: str, key: str) -> None:
    """A typing error must not look like success."""
    with pytest.raises(NotFound):
        EMPTY.with_principal(ada(0)).without(name, key)


def test_the_key_of_somebody_else_is_refused() -> None:
    """The servers find a caller by the key."""
    with pytest.raises(InvalidValue, match="is the key of ada"):
        EMPTY.with_principal(ada(0)).with_principal(
            Principal(name="bob", role=Role.USER, keys=(KEYS[0],))
        )


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("host/h1", Role.USER),
        ("h1", Role.HOST),
        ("a/b", Role.OPERATOR),
        ("host/", Role.HOST),
        ("host/a/b", Role.HOST),
        ("аda", Role.USER),
    ],
)
def test_a_name_fits_its_role(name: str, role: Role) -> None:
    """A user with the name of a host would be taken for it."""
    with pytest.raises(InvalidValue, match=r"^name: "):
        EMPTY.with_principal(Principal(name=name, role=role, keys=(KEYS[0],)))


@pytest.mark.parametrize(
    ("changes", "begins", "remedy"),
    [
        ({"version": 2}, "version: '2'", "use 1"),
        ({"cluster": "a b"}, "cluster: 'a b'", "use 1 to 60 letters"),
        ({"principal": []}, "principal: unknown key", "did you mean 'principals'?"),
        ({"revoked": ["short"]}, "revoked.0: 'short'", "write the 43 characters"),
        ({"revoked": [KEYS[0].id]}, "principals.0.keys.0: ", "remove it here"),
        (
            {"principals": [{"name": "ada", "role": "boss"}]},
            "principals.0.role: 'boss'",
            "use 'viewer', 'user'",
        ),
        (
            {"principals": [{"name": "ada", "role": "user"}] * 2},
            "principals.1.name: 'ada'",
            "add the keys to principals.0",
        ),
        (
            {"principals": [{"name": "h1", "role": "host"}]},
            "principals.0.name: 'h1'",
            "write host/HOST-ID",
        ),
        (
            {"principals": [{"name": "ada", "role": "user", "slice": "s1"}]},
            "principals.0.slice: 's1'",
            "remove it",
        ),
        (
            {"certificates": {"cn": {"name": "a b", "role": "user"}}},
            "certificates.cn.name: 'a b'",
            "use 1 to 60 letters",
        ),
        (
            {"issuers": [{"issuer": "i", "jwks_uri": "http://i/keys", "audience": "a"}]},
            "issuers.0.jwks_uri: 'http://i/keys'",
            "jwks_uri",
        ),
    ],
)
def test_an_error_names_the_field_the_value_and_the_remedy(
    changes: dict[str, Any], begins: str, remedy: str
) -> None:
    """Issuers and certificates are written by hand."""
    (problem,) = problems(**changes)

    assert problem.startswith(begins)
    assert remedy in problem


@pytest.mark.parametrize("text", ["{", "[]", "1"])
def test_a_file_that_is_no_policy_is_refused(text: str) -> None:
    """It may be another file."""
    with pytest.raises(InvalidConfig, match=r"access\.json has 1 problem"):
        parse_policy(text, "access.json")
