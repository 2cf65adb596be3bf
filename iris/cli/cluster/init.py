"""Implements `iris cluster init`: the first configuration of a cluster of existing machines."""

import getpass
import os
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import click

from iris.cli.command import Command
from iris.cli.show.columns import Column
from iris.cli.show.listing import Listing
from iris.cli.show.progress import Steps
from iris.client.operate.manual.survey import ask_machines
from iris.config import load_config
from iris.config.host_list import Login, parse_hosts
from iris.config.new_cluster import MachineReport, NewCluster, group_machines, render_config
from iris.model.errors import InvalidValue, IrisError
from iris.model.units import MIB, format_bytes
from iris.platforms.manual.settings import HostAccess, ManualSettings
from iris.storage.files import writing

#: The value of `--output` that means standard output.
STDOUT = "-"
#: The time limit for the SSH connection to a machine. The configuration file that `iris cluster
#: init` writes sets the same limit.
CONNECT_TIMEOUT = timedelta(seconds=10)


class _Row(NamedTuple):
    """A machine and the name of its scale group."""

    report: MachineReport
    group: str


_MACHINES: Listing[_Row] = Listing(
    Column("MACHINE", value=lambda row: row.report.login.address, shortens=True),
    Column("CORES", value=lambda row: row.report.cores),
    Column("MEMORY", value=lambda row: format_bytes(row.report.memory_bytes)),
    Column("FREE DISK", value=lambda row: format_bytes(row.report.disk_bytes)),
    Column("ACCELERATORS", value=lambda row: str(row.report.device or "")),
    Column("SCALE GROUP", value=lambda row: row.group, shortens=True),
)


@click.command(cls=Command)
@click.argument("hosts", metavar="HOST...", nargs=-1, required=True)
@click.option("--name", default="lab", show_default=True, help="Name of the cluster.")
@click.option(
    "--store",
    default="",
    help="Bundles, logs and results: s3://…, gs://…, or a directory that all machines share.",
)
@click.option(
    "--user", help="Login user of machines without USER@.  [default: the name of your user here]"
)
@click.option(
    "--key",
    type=click.Path(),
    help="Private key.  [default: the keys of the SSH agent and of ~/.ssh]",
)
@click.option(
    "--jump-host",
    default="",
    help="Machine through which the others are reached: [USER@]HOST[:PORT].",
)
@click.option(
    "--known-hosts",
    type=click.Path(),
    help="File with the trusted keys of machines.  [default: ~/.ssh/known_hosts]",
)
@click.option(
    "-o",
    "--output",
    default="cluster.yaml",
    show_default=True,
    help="File to write; -: standard output.",
)
@click.option("--force", is_flag=True, help="Overwrite the file if it exists.")
def init(
    hosts: tuple[str, ...],
    name: str,
    store: str,
    user: str | None,
    key: str | None,
    jump_host: str,
    known_hosts: str | None,
    output: str,
    force: bool,
) -> None:
    """Write the configuration of a cluster of existing machines. Logs in to each HOST, and changes
    nothing there.

    HOST is [USER@]HOST[:PORT], with ranges such as gpu[1-4]. Equal machines become one scale group.
    Machines that cannot be used are named with the reason, and left out.

    \b
    iris cluster init 'gpu[1-4]' --store /mnt/shared/iris
    iris cluster init ubuntu@10.0.0.11 ubuntu@10.0.0.12 --key ~/.ssh/lab --store s3://bucket/iris
    """
    if output != STDOUT and Path(output).exists() and not force:
        raise _exists(output)
    new = NewCluster(
        name=name,
        store=_store_url(store),
        key_file=_whole_path(key),
        jump_host=jump_host,
        known_hosts=_whole_path(known_hosts),
    )
    logins = parse_hosts(hosts, user or getpass.getuser())
    _check(new, logins[0])
    with Steps(f"asking {len(logins)} machine(s) what they have"):
        reports, unused = _ask(new, logins)
    if not reports:
        lines = [f"{address} cannot be used: {reason}" for address, reason in unused.items()]
        raise IrisError("\n".join(["no machine can be used, so no file is written", *lines]))
    text = render_config(new, reports, unused)
    groups = group_machines(reports)
    rows = [_Row(machine, group.name) for group in groups for machine in group.machines]
    click.echo(_MACHINES.table(rows), err=output == STDOUT)
    for address, reason in unused.items():
        click.echo(f"{address} cannot be used: {reason}", err=True)
    if output == STDOUT:
        click.echo(text, nl=False)
        return
    _write(Path(output), text, force=force)
    click.echo(
        f"{output} is written: cluster {name}, {len(rows)} machine(s) in {len(groups)} scale"
        " group(s)"
    )
    click.echo(f"next: {_next_step(new, output)}")


def _next_step(new: NewCluster, file: str) -> str:
    start = f"iris cluster start --config {file}"
    if new.store:
        return start
    return (
        f"write the place of the store to controller.bundle_prefix in {file} (or add --store),"
        f" and then: {start}"
    )


def _ask(new: NewCluster, logins: tuple[Login, ...]) -> tuple[list[MachineReport], dict[str, str]]:
    """Returns the reports of the usable machines, and by address why the others cannot be used.

    Prints warnings.
    """
    key = Path(new.key_file) if new.key_file else None
    hosts = tuple(
        HostAccess(
            address=each.address,
            user=each.user,
            port=each.port,
            key_file=key,
            jump_host=new.jump_host,
        )
        for each in logins
    )
    settings = ManualSettings(
        cluster=new.name, uid="", hosts={"": hosts}, zones={}, connect_timeout=CONNECT_TIMEOUT
    )
    if new.known_hosts:
        settings = settings.model_copy(update={"known_hosts": Path(new.known_hosts)})

    found = ask_machines(settings, hosts, new.store, setting="--store")
    reports = []
    for host, surveyed in found.items():
        if surveyed.report is not None:
            reports.append(surveyed.report)
            for note in surveyed.notes:
                click.echo(f"warning: {host}: {note}", err=True)
    return reports, {
        host.address: "; ".join(each.notes) for host, each in found.items() if each.report is None
    }


def _check(new: NewCluster, login: Login) -> None:
    """Rejects values that no configuration may have, before the first login."""
    machine = MachineReport(login=login, cores=1, memory_bytes=MIB, disk_bytes=MIB)
    complete = new if new.store else new.model_copy(update={"store": "file:///store"})
    load_config(render_config(complete, [machine], {}))


def _store_url(store: str) -> str:
    """Returns the URL of the store. The text may be the path of a directory."""
    if not store or "://" in store:
        return store
    return Path(store).expanduser().absolute().as_uri()


def _whole_path(path: str | None) -> str:
    """Returns the absolute path. `~` stays, so that other users can use the file."""
    if not path or path.startswith("~/"):
        return path or ""
    home = str(Path.home())
    whole = os.path.abspath(path)  # noqa: PTH100 - keeps links
    return f"~{whole.removeprefix(home)}" if whole.startswith(f"{home}/") else whole


def _exists(file: str) -> InvalidValue:
    return InvalidValue(
        "--output", file, "exists", "choose another file, or add --force to overwrite it"
    )


def _write(file: Path, text: str, *, force: bool) -> None:
    """Writes the file. Without `force`, keeps a file that was created there since the check."""
    try:
        opened = file.open("w" if force else "x", encoding="utf-8")
    except FileExistsError:
        raise _exists(str(file)) from None
    with writing(file), opened:
        opened.write(text)
