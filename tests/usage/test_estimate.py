"""What a job costs at most, before it runs. Pure."""

from datetime import timedelta

import pytest

from iris.config import load_config, scale_groups_of
from iris.model.host.resources import Device, DeviceKind, Resources
from iris.model.slice.scale_groups import ScaleGroup
from iris.model.units import GIB
from iris.usage.accounting import Accounting
from iris.usage.estimate import Estimate, estimate
from iris.usage.prices import Rate
from tests.config.test_config import in_cloud
from tests.usage.made_uses import DAY, T

TPU = Resources(
    cpu_millis=1000, device=Device(kind=DeviceKind.TPU, variant="v5litepod-16", count=4)
)


def group(*lines: str, name: str = "g") -> ScaleGroup:
    (found,) = scale_groups_of(load_config(in_cloud(*lines)))
    return found.model_copy(update={"name": name})


def of(
    groups: list[ScaleGroup], rates: list[Rate], needs: Resources = TPU, hosts: int = 4
) -> Estimate | None:
    candidates = [(each, each.zones) for each in groups]
    accounting = Accounting(currency="EUR", rates=tuple(rates))
    return estimate(candidates, needs, hosts, timedelta(hours=2), accounting, T)


ON_DEMAND = group("type: tpu_vm", "accelerator_variant: v5litepod-16")
SPOT = ON_DEMAND.model_copy(update={"name": "spot", "preemptible": True})
RATES = [
    Rate(machine="v5litepod", chip_hour=1.5),
    Rate(machine="v5litepod", spot=True, chip_hour=0.5),
]


def test_an_estimate_is_hosts_times_limit_times_price() -> None:
    """Four hosts of four chips for two hours; spot machines are named beside."""
    found = of([ON_DEMAND, SPOT], RATES)
    assert found == Estimate(currency="EUR", on_demand=48.0, spot=16.0, hosts=4, hours=2)
    assert "EUR 48.00 on demand or EUR 16.00 on spot" in str(found)
    assert "4 hosts for 2h" in str(found)


def test_a_task_that_shares_its_host_pays_its_part() -> None:
    """The larger part counts: an eighth of the cores, a half of the memory that the host offers."""
    machine = group("type: gce_vm", "machine_type: n2-standard-8")
    half = Resources(cpu_millis=1000, memory_bytes=machine.offers.memory_bytes // 2)
    found = of([machine], [Rate(machine="n2-standard-8", machine_hour=1)], half, hosts=3)
    assert found is not None
    assert found.on_demand == pytest.approx(3 * 0.5 * 2)


def test_the_most_expensive_place_counts() -> None:
    """At most: the job may run in any zone of any group."""
    dear = Rate(machine="v5litepod", zone=ON_DEMAND.zones[0], chip_hour=2)
    found = of([ON_DEMAND], [*RATES, dear])
    assert found is not None
    assert found.on_demand == 64.0


@pytest.mark.parametrize(
    "rates",
    [[], [Rate(machine="other", machine_hour=1)], [RATES[0].model_copy(update={"since": T + DAY})]],
)
def test_without_a_price_there_is_no_estimate(rates: list[Rate]) -> None:
    """Nothing is better than a wrong number."""
    assert of([ON_DEMAND], rates) is None


def test_a_group_without_a_price_is_named_beside_one_with() -> None:
    """The job may cost something else there."""
    other = group("type: gce_vm", "machine_type: n2-standard-8", name="cpu")
    found = of([SPOT, other], RATES, Resources(memory_bytes=GIB), hosts=1)
    assert found is not None
    assert (found.on_demand, found.unpriced) == (None, ("cpu",))
