"""The sums of what attempts held."""

from iris.model.frozen import Frozen


class Amounts(Frozen):
    """The resources that attempts held, in hours, and their cost. An attempt that held half of a
    host for two hours has one host-hour.
    """

    #: The number of attempts. In rows by day, an attempt counts for each day on which it ran.
    attempts: int = 0
    host_hours: float = 0.0
    tpu_chip_hours: float = 0.0
    gpu_hours: float = 0.0
    core_hours: float = 0.0
    #: The cost of the host-hours that have a price; None if no host-hour has a price.
    cost: float | None = None
    #: The host-hours without a price, which `cost` does not contain.
    unpriced_host_hours: float = 0.0
