"""Selects the cluster that a command acts on, and runs the command's work with a client of it."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from iris.cli.show.messages import print_json, raise_first
from iris.client import operate
from iris.client.client import AsyncIrisClient
from iris.client.connect.cluster_ref import ClusterRef, resolve_cluster
from iris.model.errors import IrisError, NotFound, Unreachable

T = TypeVar("T")


class Known(NamedTuple):
    """The part of a command's output that is known without the control plane."""

    #: The known part of the output, as text for people.
    text: str
    #: The names of the parts of the output that are missing, because only the control plane knows
    #: them.
    not_asked: str = ""
    #: The known fields of the object that the command shows, for the output as JSON. None if the
    #: command shows a list, because an incomplete list would look complete.
    fields: Mapping[str, Any] | None = None


def selected(
    ctx: click.Context,
    name: str | None = None,
    file: Path | None = None,
    *,
    none_known: type[NotFound | Unreachable] = Unreachable,
) -> ClusterRef:
    """Returns the cluster that a command acts on, by the precedence of `resolve_cluster`.

    Args:
        name: the command's argument NAME. It overrides the environment variable `IRIS_CLUSTER`.
        file: the command's option `--config`.
        none_known: the error if no cluster is named and none is known on this machine.

    Raises:
        click.UsageError: both a name and a configuration are given, or NAME and `--cluster` differ.
        NotFound, Unreachable, InvalidConfig, InvalidValue: as in `resolve_cluster`.
    """
    if name is not None and file is not None:
        raise click.UsageError("NAME and --config FILE exclude each other")
    options = ctx.find_root().obj
    if (
        name is not None
        and options["cluster"] not in (None, name)
        and not options["from_environment"]
    ):
        raise click.UsageError(
            f"NAME is {name!r} and --cluster is {options['cluster']!r}: name one cluster"
        )
    return resolve_cluster(
        options["cluster"] if name is None else name,
        file or options.get("config"),
        none_known=none_known,
    )


def iris_command(ctx: click.Context) -> str:
    """Returns how hints call `iris`: with `--cluster` if this command was called with it."""
    options = ctx.find_root().obj
    named = options["cluster"] is not None and not options["from_environment"]
    return f"iris --cluster {options['cluster']}" if named else "iris"


async def locate(cluster: ClusterRef) -> None:
    """Finds the control plane of a cluster on Google Cloud that this machine has not used before.

    Does nothing for other clusters.

    Raises:
        Unreachable: the cluster does not run.
        Rejected: this version cannot reach it.
    """
    if cluster.text is not None and cluster.record is None:
        await asyncio.to_thread(operate.make_controller.locate, cluster)


def with_client(
    ctx: click.Context,
    work: Callable[[AsyncIrisClient], Awaitable[T]],
    cluster: ClusterRef | None = None,
    *,
    known: Callable[[AsyncIrisClient], Awaitable[Known]] | None = None,
    as_json: bool = False,
) -> T:
    """Connects to a cluster, runs `work`, and returns its result.

    Args:
        cluster: by default the cluster that the options select.
        known: returns the part that is known without the control plane. If the control plane does
            not answer, that part is printed before the error.
        as_json: print the known part as JSON.

    Raises:
        Unreachable: the Temporal service or the control plane does not answer.
    """

    async def run() -> T:
        chosen = cluster or selected(ctx)
        await locate(chosen)
        client = await AsyncIrisClient.connect(chosen)
        try:
            return await work(client)
        except Unreachable:
            if known is not None:
                # If the Temporal service does not answer either, the first error says so.
                with contextlib.suppress(IrisError):
                    _print_known(await known(client), as_json=as_json)
            raise

    return asyncio.run(run())


def for_each(
    ctx: click.Context, names: Sequence[str], work: Callable[[AsyncIrisClient, str], Awaitable[str]]
) -> None:
    """Runs `work` for every name, also after a failure, and prints each result.

    Raises:
        IrisError: the first failure. The other failures are printed.
    """

    async def all_of_them(client: AsyncIrisClient) -> list[IrisError]:
        errors = []
        for name in names:
            try:
                click.echo(await work(client, name))
            except IrisError as error:
                errors.append(error)
        return errors

    raise_first(with_client(ctx, all_of_them))


def _print_known(known: Known, *, as_json: bool) -> None:
    if not as_json:
        click.echo(known.text)
    elif known.fields is not None:
        print_json({**known.fields, "not_asked": known.not_asked})
