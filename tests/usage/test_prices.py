"""Which rate of the configuration applies to a machine. Pure."""

import pytest

from iris.config import load_config, scale_groups_of
from iris.usage.accounting import accounting_of
from iris.usage.prices import Machines, PriceTable, Rate, machine_of
from tests.config.test_config import in_cloud
from tests.usage.made_uses import DAY, T

V5E = Machines("tpu", "v5litepod-16", "europe-west4-b", True, 4, 0)


@pytest.mark.parametrize(
    ("rates", "price"),
    [
        ([Rate(machine="v5litepod", spot=True, chip_hour=0.5)], 2.0),
        ([Rate(machine="v5litepod-16", spot=True, machine_hour=3, chip_hour=0.5)], 5.0),
        ([Rate(group="tpu", spot=True, machine_hour=3)], 3.0),
        # the wrong kind, zone or machine
        ([Rate(machine="v5litepod", chip_hour=0.5)], None),
        ([Rate(machine="v5lite", spot=True, chip_hour=0.5)], None),
        ([Rate(machine="v5litepod-1", spot=True, chip_hour=0.5)], None),
        ([Rate(machine="v5litepod", zone="europe-west4-a", spot=True, chip_hour=0.5)], None),
        ([Rate(machine="v5litepod", zone="europe-west", spot=True, chip_hour=0.5)], None),
        ([Rate(group="tpu2", spot=True, machine_hour=3)], None),
        ([], None),
        # a price of zero is one
        ([Rate(group="tpu", spot=True)], 0.0),
    ],
)
def test_a_rate_names_a_machine_a_group_or_a_beginning(
    rates: list[Rate], price: float | None
) -> None:
    """Price lists name chips of a family; a machine that no rate names has no price, not 0."""
    assert PriceTable(rates).host_hour(V5E, 0) == price


def test_the_rate_that_names_most_applies() -> None:
    """A contract for one group or zone overrides the list price, in any order of the file."""
    rates = [
        Rate(group="tpu", zone="europe-west4-b", spot=True, machine_hour=6),
        Rate(group="tpu", spot=True, machine_hour=5),
        Rate(machine="v5litepod-16", zone="europe-west4-b", spot=True, machine_hour=4),
        Rate(machine="v5litepod-16", zone="europe-west4", spot=True, machine_hour=3),
        Rate(machine="v5litepod-16", spot=True, machine_hour=2),
        Rate(machine="v5litepod", zone="europe-west4", spot=True, machine_hour=1),
    ]
    while rates:
        for order in (rates, rates[::-1]):
            assert PriceTable(order).host_hour(V5E, 0) == rates[0].machine_hour
        rates.pop(0)


def test_a_rate_applies_from_its_day_on() -> None:
    """Before the first day of the only price there is none."""
    later = Rate(machine="v5litepod", spot=True, machine_hour=2, since=T + DAY)
    latest = Rate(machine="v5litepod", spot=True, machine_hour=3, since=T + 2 * DAY)
    table = PriceTable([latest, later])
    hours = [table.period((T + days * DAY).timestamp()) for days in (0, 1, 1.9, 2, 9)]
    assert [table.host_hour(V5E, period) for period in hours] == [None, 2, 2, 3, 3]


def test_rates_come_from_the_configuration() -> None:
    """The day of a price begins at midnight, UTC."""
    text = in_cloud("type: gce_vm", "machine_type: n2-standard-8") + (
        "\nprices:\n  currency: EUR\n  rates:\n"
        "  - {machine: n2-standard-8, zone: europe-west4, since: 2026-11-03, machine_hour: 0.5}\n"
        "teams: {vision: [ada, bob], nlp: [eve]}\n"
    )
    config = load_config(text)
    accounting = accounting_of(config)
    (rate,) = accounting.rates
    assert (rate.since, rate.machine_hour, accounting.currency) == (T + DAY, 0.5, "EUR")
    assert accounting.team_of == {"ada": "vision", "bob": "vision", "eve": "nlp"}
    (group,) = scale_groups_of(config)
    machines = Machines.of_group(group, "europe-west4-a")
    assert PriceTable(accounting.rates).host_hour(machines, 1) == 0.5


def test_the_machine_of_a_group_is_the_name_that_the_provider_bills() -> None:
    """A TPU slice is billed by its type; a machine with GPUs by its machine type."""
    tpu = load_config(in_cloud("type: tpu_vm", "accelerator_variant: v5litepod-16"))
    (group,) = scale_groups_of(tpu)
    assert machine_of(group) == "v5litepod-16"
    assert Machines.of_group(group, "z")[-2:] == (4, 0)
