"""Implements `iris config`: which cluster, user and directory commands use, and why."""

import os
from typing import NamedTuple

import click

from iris.cli.command import Command
from iris.cli.parameters import cluster_option, json_option
from iris.cli.show.columns import Column
from iris.cli.show.listing import Listing
from iris.client.connect.cluster_ref import ClusterRef, resolve_cluster
from iris.client.connect.clusters import cluster_dir
from iris.client.connect.identity import current_user
from iris.client.connect.paths import state_dir
from iris.model import names
from iris.model.errors import IrisError


class Setting(NamedTuple):
    """A setting of the `iris` command, its value, and the origin of the value."""

    name: str
    #: The value of the setting. None if the setting has no value; `origin` then contains the
    #: reason.
    value: str | None
    #: The option, environment variable or file that sets the value.
    origin: str


_SETTINGS: Listing[Setting] = Listing(
    Column("SETTING", "name"),
    Column("VALUE", "value", wraps=True),
    Column("ORIGIN", "origin", wraps=True),
)


@click.command("config", cls=Command)
@json_option
@cluster_option
@click.pass_context
def config(ctx: click.Context, as_json: bool) -> None:
    """Show which cluster, user and directory commands use, and what decides it. Contacts no
    cluster.

    `iris cluster config` checks and shows configuration files.
    """
    options = ctx.find_root().obj
    try:
        cluster: ClusterRef | IrisError = resolve_cluster(options["cluster"])
    except IrisError as error:
        cluster = error
    origin = f"${names.ENV_CLUSTER}" if options["from_environment"] else "--cluster"
    _SETTINGS.show(
        settings(cluster, origin if options["cluster"] else "the only cluster that is known here"),
        as_json=as_json,
    )


def settings(cluster: ClusterRef | IrisError, origin: str) -> list[Setting]:
    """Returns the settings of commands.

    Args:
        cluster: the selected cluster, or the error of the selection.
        origin: the option or variable that has selected it.
    """
    found = [
        Setting("cluster", None, str(cluster))
        if isinstance(cluster, IrisError)
        else Setting("cluster", cluster.name, origin)
    ]
    if isinstance(cluster, ClusterRef) and (record := cluster.record) is not None:
        file = str(cluster_dir(record.name) / "cluster.json")
        found += [
            Setting("address", record.address, file),
            Setting("namespace", record.namespace, file),
            Setting("store", record.store, file),
            Setting("web_ui", record.ui or None, file),
        ]
    elif isinstance(cluster, ClusterRef):
        found.append(
            Setting(
                "address",
                cluster.name if cluster.is_address else None,
                "looked up when a command connects",
            )
        )
    user = f"${names.ENV_USER}" if os.environ.get(names.ENV_USER) else "login name"
    state = next(
        (name for name in (names.ENV_STATE_DIR, "XDG_STATE_HOME") if os.environ.get(name)), None
    )
    return [
        *found,
        Setting("user", current_user(), user),
        Setting("state_directory", str(state_dir()), f"${state}" if state else "default"),
    ]
