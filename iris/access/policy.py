"""The policy of a cluster with identities: who may act on it, with which keys and in which role.

Temporal's servers enforce the policy (`server/`). It contains no secrets: of each person, machine
and control plane only the public keys.
"""

import json
import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, ValidationError, field_validator

from iris.access.keys import SHORT, PublicKey
from iris.config.errors import InvalidConfig, shape_problems
from iris.config.values import Section
from iris.model.errors import InvalidValue, NotFound
from iris.model.names import HOST_PREFIX, check_name

_KEY_ID = re.compile(r"[A-Za-z0-9_-]{43}")


class Role(StrEnum):
    """The set of actions that a person, host or control plane may do.
    `docs/how-to/shared-cluster.md` describes the roles.
    """

    VIEWER = "viewer"
    USER = "user"
    OPERATOR = "operator"
    HOST = "host"
    CONTROL_PLANE = "control-plane"


def _check_owner(name: str, role: Role) -> None:
    """Checks the name of a principal of this role.

    Raises:
        InvalidValue: the name is malformed, or is that of another role.
    """
    if role is not Role.HOST:
        check_name("name", name)
        return
    if not name.startswith(HOST_PREFIX):
        raise InvalidValue("name", name, "is not the name of a host", f"write {HOST_PREFIX}HOST-ID")
    check_name("name", name.removeprefix(HOST_PREFIX))


class Principal(Section):
    """A person, host or control plane, and its keys."""

    #: The name. For a person, it is the user in the ids of jobs. For a host, it is `host/` and the
    #: host's id.
    name: str
    role: Role
    keys: tuple[PublicKey, ...] = ()
    #: The slice of a host that joined the cluster by itself, not as a machine that Iris created.
    #: Empty if the slice has the same id as the host.
    slice: str = ""

    @field_validator("slice")
    @classmethod
    def _is_id(cls, slice_id: str) -> str:
        return slice_id and check_name("slice", slice_id)


class Mapped(Section):
    """The name and the role of a person or machine that is identified by a token of an issuer or by
    a TLS certificate.
    """

    name: str
    role: Role


class Issuer(Section):
    """A service that issues tokens (OpenID Connect)."""

    #: The `iss` claim of the tokens: a URL.
    issuer: str
    #: The URL of the issuer's public keys, a JSON Web Key Set.
    jwks_uri: str
    #: The `aud` claim of the tokens.
    audience: str
    #: The name of the claim whose value identifies a person.
    claim: str = "email"
    #: The names and roles of the people who are accepted, by the value of the claim `claim` in
    #: their tokens. Tokens with other values are refused.
    users: dict[str, Mapped] = Field(default={})


class Policy(Section):
    """The access policy of a cluster: the people, hosts and control planes that may act on it, and
    the actions that each role may do.
    """

    #: The fields in which any text is allowed, such as `*` in the rules. Only the Temporal servers
    #: check these fields.
    free_texts: ClassVar[frozenset[str]] = frozenset({"rules"})

    version: Literal[1] = 1
    #: The name of the cluster. A token is accepted only if it names this cluster.
    cluster: str
    #: The Temporal namespace of the cluster. Only this cluster may use the namespace.
    namespace: str = "default"
    principals: tuple[Principal, ...] = ()
    issuers: tuple[Issuer, ...] = ()
    #: The names and roles of people and machines by the common name of their TLS certificate. The
    #: certificate identifies the caller only if a call has no token.
    certificates: dict[str, Mapped] = Field(default={})
    #: The ids of revoked keys. Tokens and delegations that were signed with them are refused.
    revoked: tuple[str, ...] = ()
    #: The directory in which each server writes its audit files. Empty if the servers write no
    #: audit files.
    audit_dir: str = ""
    #: The actions that each role may do, as written by `iris.access.rules`.
    rules: dict[str, Any] = Field(default={})

    @field_validator("cluster")
    @classmethod
    def _is_name(cls, cluster: str) -> str:
        return check_name("cluster", cluster)

    @property
    def entries(self) -> Iterator[Principal | Mapped]:
        """All entries that name somebody."""
        yield from self.principals
        yield from self.certificates.values()
        for issuer in self.issuers:
            yield from issuer.users.values()

    def find(self, name: str) -> Principal | None:
        """Returns the principal of this name; None if there is none."""
        return next((each for each in self.principals if each.name == name), None)

    def with_principal(self, added: Principal) -> Self:
        """Returns the policy with another principal, or with further keys of a known one, which
        gets the role and the slice of `added`.

        Raises:
            InvalidValue: the name does not fit the role, or somebody else has the key, or the key
                is revoked.
        """
        _check_owner(added.name, added.role)
        for key in added.keys:
            self._check_free(key, added.name)
        known = self.find(added.name)
        if known is not None:
            keys = dict.fromkeys((*known.keys, *added.keys))
            added = added.model_copy(update={"keys": tuple(keys)})
        rest = (each for each in self.principals if each.name != added.name)
        both = sorted((*rest, added), key=lambda each: each.name)
        return self.model_copy(update={"principals": tuple(both)})

    def _check_free(self, key: PublicKey, name: str) -> None:
        owner = next((each for each in self.principals if key in each.keys), None)
        if owner is not None and owner.name != name:
            raise InvalidValue(
                "key", key, f"is the key of {owner.name}", "make another key: iris user key"
            )
        if key.id in self.revoked:
            raise InvalidValue("key", key, "was revoked", "make another one: iris user key --new")

    def without(self, name: str, key_id: str = "") -> Self:
        """Returns the policy without somebody, or without one of their keys. The keys are listed as
        revoked, so that they cannot come back and their delegations end.

        Args:
            key_id: the id of the key, or its beginning; empty: everything of this name, also the
                certificates and the entries of issuers.

        Raises:
            NotFound: there is nobody of this name, or nobody with this key.
        """
        known = self.find(name)
        keys = known.keys if known is not None else ()
        gone = tuple(key for key in keys if key.id.startswith(key_id))
        if key_id and not gone:
            has = ", ".join(key.id[:SHORT] for key in keys) or "none"
            raise NotFound(f"{name} has no key {key_id!r}; the keys of {name} are: {has}")
        revoked = (*self.revoked, *(key.id for key in gone))
        left = tuple(key for key in keys if key not in gone)
        changed = self.model_copy(update={"revoked": tuple(dict.fromkeys(revoked))})
        if key_id and known is not None:
            rest = (
                each.model_copy(update={"keys": left}) if each.name == name else each
                for each in self.principals
            )
            return changed.model_copy(update={"principals": tuple(rest)})
        changed = changed._without_entries(name)
        if changed == self:
            raise NotFound(f"the policy has no {name!r}; iris user list shows all names")
        return changed

    def _without_entries(self, name: str) -> Self:
        """Returns the policy without all entries of this name."""
        return self.model_copy(
            update={
                "principals": tuple(each for each in self.principals if each.name != name),
                "certificates": _others(self.certificates, name),
                "issuers": tuple(
                    issuer.model_copy(update={"users": _others(issuer.users, name)})
                    for issuer in self.issuers
                ),
            }
        )

    def to_json(self) -> str:
        """Returns the content of the policy's file."""
        values = self.model_dump(mode="json")
        for principal in values["principals"]:
            if not principal["slice"]:
                del principal["slice"]
        return json.dumps(values, indent=2) + "\n"


def _others(entries: Mapping[str, Mapped], name: str) -> dict[str, Mapped]:
    return {key: each for key, each in entries.items() if each.name != name}


def parse_policy(text: str, source: str) -> Policy:
    """Returns the policy in the content of a file.

    Args:
        source: the name of the file, for messages.

    Raises:
        InvalidConfig: the policy has errors; `problems` lists them.
    """
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise InvalidConfig([f"{where}: invalid JSON: {error.msg}"], source) from None
    if not isinstance(values, dict):
        raise InvalidConfig(["the file is not a JSON object"], source)
    try:
        policy = Policy.model_validate(values)
    except ValidationError as error:
        raise InvalidConfig(shape_problems(error, Policy).values(), source) from None
    if problems := _contradictions(policy):
        raise InvalidConfig(problems, source)
    return policy


def _contradictions(policy: Policy) -> list[str]:
    """Returns the problems of a policy whose fields are valid alone."""
    found: list[str] = []
    names: dict[str, int] = {}
    keys: dict[str, str] = {}
    for index, principal in enumerate(policy.principals):
        where = f"principals.{index}"
        found += _owner_problems(f"{where}.name", principal.name, principal.role)
        if principal.name in names:
            first = f"principals.{names[principal.name]}"
            found.append(f"{where}.name: {principal.name!r} is repeated; add the keys to {first}")
        names.setdefault(principal.name, index)
        if principal.slice and principal.role is not Role.HOST:
            found.append(
                f"{where}.slice: {principal.slice!r} is set for a {principal.role}; only hosts have"
                " a slice, remove it"
            )
        for place, key in enumerate(principal.keys):
            here = f"{where}.keys.{place}"
            if keys.setdefault(key.id, principal.name) != principal.name:
                found.append(f"{here}: {str(key)!r} is the key of {keys[key.id]}; remove one")
            if key.id in policy.revoked:
                found.append(
                    f"{here}: {str(key)!r} is revoked; remove it here, or {key.id} from revoked"
                )
    for index, revoked in enumerate(policy.revoked):
        if _KEY_ID.fullmatch(revoked) is None:
            found.append(
                f"revoked.{index}: {revoked!r} is not the id of a key; write the 43 characters"
                " that iris user list --json shows"
            )
    mapped = [(f"certificates.{name}", each) for name, each in policy.certificates.items()]
    for index, issuer in enumerate(policy.issuers):
        mapped += [(f"issuers.{index}.users.{name}", each) for name, each in issuer.users.items()]
        if not issuer.jwks_uri.startswith("https://"):
            found.append(
                f"issuers.{index}.jwks_uri: {issuer.jwks_uri!r} is not an https URL; write the"
                " jwks_uri of the issuer's /.well-known/openid-configuration"
            )
    for where, each in mapped:
        found += _owner_problems(f"{where}.name", each.name, each.role)
    return found


def _owner_problems(where: str, name: str, role: Role) -> list[str]:
    try:
        _check_owner(name, role)
    except InvalidValue as error:
        return [f"{where}: {str(error).removeprefix('name: ')}"]
    return []
