"""Implements `iris user key | token | add | list | revoke`."""

from pathlib import Path
from typing import NamedTuple

import click

from iris.access.keys import SHORT, PublicKey
from iris.access.policy import Policy, Principal, Role
from iris.cli.command import CommandGroup
from iris.cli.parameters import Parsed, cluster_option, json_option
from iris.cli.run import selected
from iris.cli.show.columns import Column
from iris.cli.show.listing import Listing
from iris.client.access.identity_file import (
    Identity,
    new_identity,
    read_identity,
    write_identity,
)
from iris.client.access.policy_file import change_policy, policy_path, read_policy
from iris.client.access.selection import token_source
from iris.client.connect.identity import current_user
from iris.client.connect.paths import identity_path
from iris.model import names
from iris.model.errors import InvalidValue, Rejected

_POLICY = click.option(
    "--policy",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help=f"Policy of the cluster.  [default: ${names.ENV_ACCESS_POLICY}]",
)
#: The type of an option whose value is a public key.
_KEY = Parsed("public key", PublicKey.parse)


class Access(NamedTuple):
    """One way in which an access policy identifies a person, host or control plane."""

    name: str
    role: Role
    #: The way of identification: `key`, `certificate` or `token`.
    by: str
    #: The id of the key, the name in the certificate, or the claim in the token.
    id: str
    slice: str = ""


USERS: Listing[Access] = Listing(
    Column("NAME", "name"),
    Column("ROLE", "role"),
    Column("BY", "by"),
    Column("ID", "id", text=lambda text: text if "@" in text else text[:SHORT]),
    Column("SLICE", "slice", optional=True),
    empty="the policy names nobody; add somebody with: iris user add NAME --role ROLE --key KEY",
)


@click.group(cls=CommandGroup)
def user() -> None:
    """Make your key, and add, list and revoke the users of a cluster with identities."""


@user.command()
@click.argument("name", required=False)
@click.option("--new", is_flag=True, help="Replace the key of this machine by a new one.")
@click.option(
    "--file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help=f"File of the identity.  [default: ${names.ENV_IDENTITY}, or identity.json of Iris]",
)
@cluster_option
@click.pass_context
def key(ctx: click.Context, name: str | None, new: bool, file: Path | None) -> None:
    """Make the key of this machine's user NAME for a cluster, and print its public part.

    The private part stays in a file that only you can read. Your tokens are sent only to the
    addresses for which you have run this command. NAME is your login name, if you have no key yet.

    \b
    iris user key ada --cluster temporal.lab.example:7233/lab
    """
    path = file or identity_path()
    identity = _identity(path, name, new=new)
    if (cluster := _cluster(ctx)) is not None:
        identity = identity.with_cluster(*cluster)
    write_identity(path, identity)
    for each in identity.clusters:
        click.echo(
            f"{identity.name} signs in to cluster {each.name} at {each.address}; the key is in"
            f" {path}",
            err=True,
        )
    if not identity.clusters:
        click.echo(
            "the key is for no cluster yet; name one: iris user key --cluster ADDRESS/NAME",
            err=True,
        )
    click.echo(
        "give the administrator of the cluster this line, for: iris user add"
        f" {identity.name} --role ROLE --key KEY",
        err=True,
    )
    click.echo(str(identity.key.public))


def _identity(path: Path, name: str | None, *, new: bool) -> Identity:
    """Returns the identity in the file, or a new one.

    Raises:
        Rejected: the file has another name.
    """
    known = read_identity(path) if path.exists() else None
    if known is not None and name not in (None, known.name) and not new:
        raise Rejected(
            f"{path} has the key of {known.name}; name another file for {name} with --file, or"
            " replace the key with --new"
        )
    if known is not None and not new:
        return known
    chosen = name or (known.name if known is not None else current_user())
    kind, _, host = chosen.rpartition("/")
    if kind not in ("", "host"):
        raise InvalidValue("name", chosen, "is not a name", "write NAME, or host/HOST-ID")
    names.check_name("name", host)
    made = new_identity(chosen)
    return made if known is None else made.model_copy(update={"clusters": known.clusters})


def _cluster(ctx: click.Context) -> tuple[str, str] | None:
    """Returns the name and the address of the cluster for which the key is; None: none is named.

    Raises:
        InvalidValue: the address has no name of a cluster.
    """
    if ctx.find_root().obj["cluster"] is None:
        return None
    chosen = selected(ctx)
    if chosen.record is not None:
        return chosen.record.name, chosen.record.address
    address, _, name = chosen.name.partition("/")
    if not name or not chosen.is_address:
        raise InvalidValue(
            "cluster", chosen.name, "does not name a cluster", "write HOST:PORT/NAME"
        )
    return names.check_name("cluster", name), address


@user.command()
@cluster_option
@click.pass_context
def token(ctx: click.Context) -> None:
    """Print a token of yours for the cluster, for programs that know nothing of Iris. It is valid
    for ten minutes.

    \b
    TEMPORAL_API_KEY=$(iris user token) temporal workflow list
    """
    chosen = selected(ctx)
    address = chosen.name.partition("/")[0] if chosen.record is None else chosen.record.address
    source = token_source(address)
    if source is None:
        raise Rejected(
            f"this machine has no identity for {address}; make a key: iris user key --cluster"
            f" {address}/NAME"
        )
    click.echo(source.token().text)


@user.command()
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice([role.value for role in Role]),
    required=True,
    help="What NAME may do; see docs/how-to/shared-cluster.md.",
)
@click.option("--key", "public", type=_KEY, help="The line that `iris user key` of NAME printed.")
@click.option("--slice", "slice_id", default="", help="Slice of a host that joins with --slice.")
@_POLICY
def add(name: str, role: str, public: PublicKey | None, slice_id: str, file: Path | None) -> None:
    """Add NAME to the policy of a cluster, or a further key of NAME, or change the role of NAME.

    A host that joins is host/HOST-ID. The servers read the policy again within seconds.

    \b
    iris user add ada --role user --key ed25519:… --policy access.json
    """
    keys = () if public is None else (public,)
    added = Principal(name=name, role=Role(role), keys=keys, slice=slice_id)

    def change(policy: Policy) -> Policy:
        if not keys and policy.find(name) is None:
            raise InvalidValue(
                "key",
                "",
                f"is missing, and {name} is not in the policy yet",
                "add the line that iris user key prints",
            )
        return policy.with_principal(added)

    changed = change_policy(policy_path(file), change).find(name)
    assert changed is not None
    shown = ", ".join(each.id[:SHORT] for each in changed.keys)
    click.echo(f"{name} is {role}, with key {shown}", err=True)


@user.command("list")
@json_option
@_POLICY
def list_users(as_json: bool, file: Path | None) -> None:
    """List who may act on a cluster: names, roles, and how the servers recognise them."""
    USERS.show(_accesses(read_policy(policy_path(file))), as_json=as_json)


@user.command()
@click.argument("name")
@click.option("--key", "key_id", default="", help="Only the key with this id.  [default: all]")
@_POLICY
def revoke(name: str, key_id: str, file: Path | None) -> None:
    """Remove NAME from the policy of a cluster, or one key of NAME.

    The servers refuse the keys within seconds. Jobs of NAME run on; an operator can cancel them.
    """
    count = 0

    def change(policy: Policy) -> Policy:
        nonlocal count
        changed = policy.without(name, key_id)
        count = len(changed.revoked) - len(policy.revoked)
        return changed

    change_policy(policy_path(file), change)
    click.echo(
        f"{name} is revoked, with {count} key(s)" if not key_id else f"a key of {name} is revoked",
        err=True,
    )


def _accesses(policy: Policy) -> list[Access]:
    found = [
        Access(each.name, each.role, "key", key.id, each.slice)
        for each in policy.principals
        for key in each.keys
    ]
    found += [
        Access(each.name, each.role, "certificate", subject)
        for subject, each in policy.certificates.items()
    ]
    found += [
        Access(each.name, each.role, "token", f"{claim} @ {issuer.issuer}")
        for issuer in policy.issuers
        for claim, each in issuer.users.items()
    ]
    return sorted(found)
