"""Implements `iris quota list`. The keys of the JSON are a public contract (tests/cli)."""

import click

from iris.cli.command import CommandGroup
from iris.cli.parameters import cluster_option, json_option
from iris.cli.run import with_client
from iris.cli.show.columns import Column
from iris.cli.show.listing import Listing
from iris.messages.quotas import QuotaRow
from iris.model.quotas import bare_amount


def _shown(header: str, key: str, *, optional: bool = False) -> Column[QuotaRow]:
    """Returns a column of the table with the amounts of a field. An optional one shows no zeros."""

    def text(row: QuotaRow) -> str:
        amount = getattr(row, key)
        return bare_amount(row.resource, amount) if amount or not optional else ""

    return Column(header, value=text, optional=optional)


def _number(key: str) -> Column[QuotaRow]:
    """Returns a key of the JSON: cores for cpus, bytes for memory."""

    def number(row: QuotaRow) -> float | int:
        amount: int = getattr(row, key)
        return amount / 1000 if row.resource == "cpus" else amount

    return Column(key=key, value=number)


QUOTAS: Listing[QuotaRow] = Listing(
    Column("QUOTA", "quota", shortens=True),
    Column("HOLDER", "holder", shortens=True),
    Column("BANDS", "bands", absent="all", text=", ".join, optional=True),
    Column("COHORT", "cohort", optional=True),
    Column("RESOURCE", "resource"),
    _shown("USED", "used"),
    _shown("NOMINAL", "nominal"),
    _shown("BORROWED", "borrowed", optional=True),
    _shown("LENT", "lent", optional=True),
    Column("WAITING JOBS", "waiting"),
    *map(_number, ("used", "nominal", "borrowed", "lent")),
    empty="the configuration has no quotas",
    keys="quota holder bands cohort resource used nominal borrowed lent waiting",
)


@click.group(cls=CommandGroup)
def quota() -> None:
    """Show quotas: what users, teams and tagged jobs may hold at once."""


@quota.command("list")
@click.option("--user", default="", help="Only the quotas of this user and of the user's team.")
@json_option
@cluster_option
@click.pass_context
def list_quotas(ctx: click.Context, user: str, as_json: bool) -> None:
    """List quotas and named limits: what is used, what is borrowed and lent, and how many jobs
    wait.
    """
    found = with_client(ctx, lambda client: client.cluster.quotas(user))
    QUOTAS.show(found.rows, as_json=as_json)
