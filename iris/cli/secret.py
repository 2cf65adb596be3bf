"""Implements `iris secret set | list | rm | rotate | new-keys`."""

import os
import sys
from pathlib import Path
from typing import Any

import click

from iris.cli.command import CommandGroup
from iris.cli.parameters import cluster_option, json_option
from iris.cli.run import for_each, selected, with_client
from iris.cli.show.columns import Column
from iris.cli.show.listing import Listing
from iris.cli.show.messages import print_json
from iris.client import operate
from iris.client.client import AsyncIrisClient
from iris.client.connect.cluster_ref import ClusterRef
from iris.client.connect.secret_keys import new_keys
from iris.client.operate import manual
from iris.client.operate.key_rotation import rotate_keys
from iris.client.secrets.named import NamedSecret
from iris.model.job.secrets import MAX_VALUE_BYTES, check_secret_name
from iris.model.names import ENV_SECRET_KEYS

SECRETS: Listing[NamedSecret] = Listing(
    Column("SECRET", "name"),
    Column("SET BY", "by"),
    Column("WHEN", "at"),
    Column(key="user"),
    keys="name user by at",
    empty="no named secrets",
)


@click.group(cls=CommandGroup)
def secret() -> None:
    """Keep secrets for your jobs: sealed for the cluster before they leave this machine."""


@secret.command("set")
@click.argument("name")
@click.option(
    "--from-file",
    "file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="PATH",
    help=(
        "Take the value from this file.  [default: standard input; on a terminal, the command asks"
        " for it]"
    ),
)
@cluster_option
@click.argument("value", nargs=-1, metavar="")
@click.pass_context
def set_secret(ctx: click.Context, name: str, file: Path | None, value: tuple[str, ...]) -> None:
    """Set secret NAME for your jobs, for `iris submit --secret NAME`. Replaces an earlier value.

    No command shows the value; only your programs can read it. An attempt gets the value that is
    set when the attempt starts.

    \b
    iris secret set HF_TOKEN                 asks for the value
    pass show hf | iris secret set HF_TOKEN
    iris secret set DEPLOY_KEY --from-file ~/.ssh/deploy
    """
    check_secret_name(name)
    if value:
        raise click.UsageError(
            "a value in the command line is in the history of your shell, and other users of this"
            " machine can read it; replace it at its source, and pass it on standard input: iris"
            f" secret set {name} < FILE"
        )
    given = _given(name, file)
    found = with_client(ctx, lambda client: client.secrets.set(name, given))
    click.echo(
        f"secret {found.name} of {found.user} is set; jobs get it with --secret {found.name}",
        err=True,
    )


@secret.command("list")
@json_option
@cluster_option
@click.pass_context
def list_secrets(ctx: click.Context, as_json: bool) -> None:
    """List your named secrets: who has set them, and when. No command shows a value."""
    SECRETS.show(with_client(ctx, lambda client: client.secrets.list()), as_json=as_json)


@secret.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@cluster_option
@click.pass_context
def rm(ctx: click.Context, names: tuple[str, ...]) -> None:
    """Delete each secret NAME. Programs that run keep it; attempts that start later fail."""

    async def one(client: AsyncIrisClient, name: str) -> str:
        await client.secrets.remove(name)
        return f"secret {name} is deleted"

    for_each(ctx, names, one)


@secret.command()
@json_option
@cluster_option
@click.pass_context
def rotate(ctx: click.Context, as_json: bool) -> None:
    """Replace the key with which secrets are sealed, and seal again what is in the store.

    Run it where the cluster was started, or on the machine of its control plane. Jobs go on, and no
    process needs a restart. The previous key is kept until the next rotation, and for as long as a
    secret is sealed with it.
    """

    async def here(client: AsyncIrisClient) -> dict[str, Any]:
        return (await rotate_keys(client.record)).facts

    cluster = selected(ctx)
    over_ssh = (
        cluster.record is not None
        and cluster.record.ssh is not None
        and not os.environ.get(ENV_SECRET_KEYS)
    )
    done = _over_ssh(cluster) if over_ssh else with_client(ctx, here, cluster)
    if as_json:
        print_json(done)
        return
    click.echo(
        f"secrets are sealed with key {done['key']} from now on; {done['sealed_again']} were sealed"
        " again",
        err=True,
    )
    removed = f"; {done['removed']} earlier keys were removed" if done["removed"] else ""
    click.echo(f"the keys are in {done['file']}{removed}", err=True)


@secret.command("new-keys")
def print_new_keys() -> None:
    """Print a new file of keys for users' secrets, for a control plane that does not make its own.

    \b
    (umask 077; iris secret new-keys > secret.keys)
    """
    click.echo(new_keys(), nl=False)


def _over_ssh(cluster: ClusterRef) -> dict[str, Any]:
    """Rotates the keys of a cluster with its control plane on a machine over SSH."""
    controller = operate.make_controller.controller_of(cluster)
    assert isinstance(controller, manual.controller.ManualController)
    return controller.rotate_keys()


def _given(name: str, file: Path | None) -> bytes:
    """Returns the value of the secret: from the file, standard input, or a prompt on a terminal."""
    if file is not None:
        with file.open("rb") as opened:
            return opened.read(MAX_VALUE_BYTES + 3)
    if sys.stdin.isatty():
        return str(click.prompt(f"value of {name}", hide_input=True, err=True)).encode(
            errors="surrogateescape"
        )
    return sys.stdin.buffer.read(MAX_VALUE_BYTES + 3)
