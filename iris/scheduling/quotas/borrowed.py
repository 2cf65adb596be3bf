"""Which gangs hold what their quotas have borrowed."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from iris.model.job.requests import Placement
from iris.scheduling.quotas.amounts import amounts_of
from iris.scheduling.quotas.table import QuotaTable
from iris.scheduling.quotas.use import QuotaUse


class Borrowed(NamedTuple):
    """A gang that holds more than the nominal amounts of its quota."""

    placement: Placement
    cohort: str
    #: The quota that has borrowed for it.
    quota: str
    #: The resources that are borrowed.
    resources: frozenset[str]


def gangs_of_accounts(table: QuotaTable, live: Iterable[Placement]) -> dict[int, list[Placement]]:
    """Returns the gangs that each account counts, by the number of the account."""
    found: dict[int, list[Placement]] = {}
    for placement in live:
        for number in table.covering(placement):
            found.setdefault(number, []).append(placement)
    return found


def borrowed_gangs(use: QuotaUse, gangs: Mapping[int, list[Placement]]) -> list[Borrowed]:
    """Returns the gangs that hold borrowed amounts.

    The nominal amounts of a quota belong to its gangs of the highest bands, and in a band to those
    that started first. So none of these gangs is evicted for another quota, however many of the
    others are.

    Args:
        gangs: the gangs by account.
    """
    table = use.table
    over = {
        number
        for (number, resource), used in use.used.items()
        if table.accounts[number].cohort is not None
        and used > table.accounts[number].nominal[resource]
    }
    found: list[Borrowed] = []
    for number in sorted(over):
        account = table.accounts[number]
        left = dict(account.nominal)
        for placement in sorted(gangs.get(number, ()), key=_precedence):
            counted = [
                (each, amount)
                for each, amount in amounts_of(placement).items()
                if each in account.nominal
            ]
            if beyond := [each for each, amount in counted if amount > left[each]]:
                found.append(
                    Borrowed(placement, account.cohort or "", account.name, frozenset(beyond))
                )
                continue
            for each, amount in counted:
                left[each] -= amount
    return found


def _precedence(placement: Placement) -> tuple[int, float, str]:
    started = placement.placed_at.timestamp() if placement.placed_at else 0.0
    return (placement.band.rank, started, placement.key)
