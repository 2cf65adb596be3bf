"""Implements `iris whoami`."""

from typing import Any

import click

from iris.access.keys import SHORT
from iris.cli.command import Command
from iris.cli.parameters import cluster_option, json_option
from iris.cli.run import with_client
from iris.cli.show.messages import print_json
from iris.client.access.identity_file import own_identity_at
from iris.client.access.whoami import Caller
from iris.client.client import AsyncIrisClient
from iris.client.connect.identity import current_user
from iris.model.errors import Rejected


@click.command(cls=Command)
@json_option
@cluster_option
@click.pass_context
def whoami(ctx: click.Context, as_json: bool) -> None:
    """Show who you are on a cluster: the name and role that its Temporal servers give you, and your
    key.
    """

    async def work(client: AsyncIrisClient) -> tuple[AsyncIrisClient, Caller]:
        return client, await client.cluster.whoami()

    client, caller = with_client(ctx, work)
    facts = _facts(client, caller)
    if as_json:
        print_json(facts)
    else:
        click.echo(_text(facts))
    if caller.refusal:
        raise Rejected(f"cluster {client.record.name} refuses you: {caller.refusal}")


def _facts(client: AsyncIrisClient, caller: Caller) -> dict[str, Any]:
    at = client.record.address
    own = own_identity_at(at)
    return {
        "cluster": client.record.name,
        "address": at,
        "identities": caller.identities,
        "name": caller.name or (None if caller.identities else current_user()),
        "role": caller.role or None,
        "key": own[0].key.id if own is not None else None,
        "accepted": not caller.refusal,
    }


def _text(facts: dict[str, Any]) -> str:
    where = f"cluster {facts['cluster']} at {facts['address']}"
    if not facts["identities"]:
        return f"{facts['name']} on {where}, which has no identities: anyone may use any name"
    key = f", key {facts['key'][:SHORT]}" if facts["key"] else ""
    return f"{facts['name'] or 'nobody'} ({facts['role'] or 'no role'}) on {where}{key}"
