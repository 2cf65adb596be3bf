"""Implements `iris version`."""

import click

from iris.cli.command import Command
from iris.cli.parameters import cluster_option, json_option
from iris.cli.run import with_client
from iris.cli.show.messages import print_json
from iris.client.connect.deployment import own_version
from iris.client.operate.local.versions import Versions, versions_of
from iris.model.errors import InvalidValue, NotFound, Rejected, Unreachable


@click.command(cls=Command, name="version")
@json_option
@cluster_option
@click.pass_context
def show_version(ctx: click.Context, as_json: bool) -> None:
    """Show the versions of this client and of a cluster's parts, and whether they fit.

    Names the parts that do not answer. `iris --version` asks nothing.
    """
    try:
        found = with_client(ctx, versions_of)
    except InvalidValue:  # the name of the cluster is malformed
        raise
    except (NotFound, Unreachable, Rejected) as error:
        found = Versions(client=own_version(), not_asked=str(error))
    if as_json:
        print_json(found.model_dump(mode="json"))
        return
    rows = {"client": found.client}
    if found.server is not None:
        rows["Temporal"] = f"{found.server}, of cluster {found.cluster}"
    if found.control_plane:
        rows["control plane"] = ", ".join(_text(each) for each in found.control_plane)
    if found.agents:
        counted = ((len(each.hosts), _text(each.version)) for each in found.agents)
        rows["agents"] = ", ".join(
            f"{version} on {count} host{'s' * (count != 1)}" for count, version in counted
        )
    for name, text in rows.items():
        click.echo(f"{name:<15}{text}")
    if found.not_asked:
        click.echo(f"{'not asked':<15}{found.not_asked}")
    elif found.fits:
        click.echo("the versions fit")
    else:
        click.echo(f"the versions do not fit: {found.remedy}")


def _text(version: str | None) -> str:
    return version or "unknown"
