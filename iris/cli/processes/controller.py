"""Implements `iris controller`: processes of a control plane."""

import asyncio
from pathlib import Path

import click

from iris.cli.command import CommandGroup
from iris.cli.parameters import metrics_options
from iris.cli.processes.manual_controller import manual
from iris.client import fleet
from iris.model.errors import InvalidValue
from iris.model.names import check_name
from iris.processes.process import be_private, stop_event
from iris.storage.object_store import Store
from iris.worker_agents.local.ui_guard import serve as guard
from iris.worker_agents.logging_setup import log_to_stderr


@click.group(cls=CommandGroup)
def controller() -> None:
    """Run a control plane."""


@controller.command()
@click.option("--name", required=True, help="Name of the cluster.")
@click.option(
    "--address", required=True, metavar="HOST:PORT", help="Address of the Temporal service."
)
@click.option("--namespace", default="default", show_default=True, help="Temporal namespace.")
@click.option(
    "--store", required=True, metavar="URL", help="The object store: file:///…, gs://… or s3://…."
)
@click.option("--ui", default="", metavar="URL", help="URL of Temporal's Web UI, for links.")
@click.option(
    "--config",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Configuration file of the cluster.",
)
@click.option(
    "--advertise",
    default="",
    metavar="HOST:PORT",
    help="Address of the Temporal service for hosts.  [default: --address]",
)
@metrics_options
@click.option(
    "--dashboard-port",
    type=click.IntRange(0, 65535),
    help="Port of the dashboard; 0: none.  [default: from the configuration, or 10002]",
)
@click.option("--machines", type=click.Path(path_type=Path), hidden=True)
def serve(
    name: str,
    address: str,
    namespace: str,
    store: str,
    ui: str,
    config: Path | None,
    advertise: str,
    metrics_port: int | None,
    metrics_address: str | None,
    dashboard_port: int | None,
    machines: Path | None,
) -> None:
    """Serve a cluster's workflows until SIGTERM. Run two processes to tolerate the failure of
    one.
    """
    from iris.worker_agents.control_plane.serve import ControlPlaneOptions, serve

    log_to_stderr()
    be_private()
    options = ControlPlaneOptions(
        cluster=check_name("name", name),
        address=address,
        namespace=namespace,
        store=store,
        ui=ui,
        config=config,
        machines=machines,
        advertise=advertise,
        metrics_port=metrics_port,
        metrics_address=metrics_address,
        dashboard_port=dashboard_port,
    )
    asyncio.run(serve(options))


@controller.command("run")
@click.option(
    "--config",
    required=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Configuration file, unless the machine's metadata has the configuration.",
)
@click.option(
    "--state-dir",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory for persistent state.",
)
@click.option(
    "--port",
    default=10000,
    show_default=True,
    type=click.IntRange(1, 65534),
    help="Port of the Temporal server.",
)
@click.option(
    "--advertise",
    metavar="HOST:PORT",
    help="Address of the Temporal server for hosts.  [default: this machine's internal name]",
)
@metrics_options
def run_(
    config: Path,
    state_dir: Path,
    port: int,
    advertise: str | None,
    metrics_port: int | None,
    metrics_address: str | None,
) -> None:
    """Run a cluster's control plane until SIGTERM, and a Temporal server unless the configuration
    names one.
    """
    from iris.worker_agents.control_plane.gce_controller import HostedOptions, run

    log_to_stderr()
    be_private()
    asyncio.run(
        run(
            HostedOptions(
                config=config.absolute(),
                state_dir=state_dir.absolute(),
                port=port,
                advertise=advertise,
                metrics_port=metrics_port,
                metrics_address=metrics_address,
            )
        )
    )


@controller.command("guard-ui")
@click.option(
    "--listen",
    required=True,
    metavar="HOST:PORT",
    help="Address for browsers. Publish it on this machine only.",
)
@click.option("--backend", required=True, metavar="HOST:PORT", help="Address of the Web UI.")
def guard_ui(listen: str, backend: str) -> None:
    """Serve a Temporal Web UI to users of this machine until SIGTERM. Refuses what web pages of
    other sites send to it.
    """
    log_to_stderr()
    asyncio.run(guard(_address("listen", listen), _address("backend", backend)))


def _address(option: str, text: str) -> str:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise InvalidValue(
            option, text, "is not an address", "write HOST:PORT, such as 127.0.0.1:8080"
        )
    return text


controller.add_command(manual)


@controller.command("ship-audit")
@click.argument(
    "directory", type=click.Path(path_type=Path, exists=True, file_okay=False, resolve_path=True)
)
@click.option("--name", required=True, help="Name of the cluster.")
@click.option(
    "--store", required=True, metavar="URL", help="The object store: file:///…, gs://… or s3://…."
)
def ship_audit(directory: Path, name: str, store: str) -> None:
    """Store the audit that a Temporal server with identities writes into DIRECTORY, until SIGTERM.
    Run one beside each server.
    """
    log_to_stderr()

    async def serve_() -> None:
        await fleet.audit.ship_until(
            stop_event(), Store(store), check_name("name", name), directory
        )

    asyncio.run(serve_())
