"""What a simulation assumes of the machines and of the people: how long machines take to boot, how
often they are preempted or out of stock, and who submits again.
"""

from typing import Annotated

from pydantic import BeforeValidator, Field

from iris.config.load import dump_section, load_section
from iris.config.values import Section, read_duration
from iris.model.errors import InvalidValue

#: The key of the entry for every scale group and zone that has no entry of its own.
ANY = "*"
#: The upper limit on a slice's preemptions or failures per hour: one in each second.
MOST_PER_HOUR = 3600.0


def _read_seconds(value: object) -> float:
    return read_duration(value).total_seconds()


def _read_period(value: object) -> float:
    if (seconds := _read_seconds(value)) < 1:
        raise InvalidValue("period", value, "is shorter than a second", "write 1s or more")
    return seconds


def _read_quantiles(value: object) -> object:
    """Returns a distribution as seconds. One duration is a constant."""
    values = value if isinstance(value, list | tuple) else [value]
    if not values:
        raise InvalidValue("distribution", value, "is empty", "give a duration, or a list of them")
    return tuple(sorted(map(_read_seconds, values)))


def _read_shares(value: object) -> object:
    """Returns a part of the time for each hour of the day by UTC. One number is for all hours."""
    values = value if isinstance(value, list | tuple) else [value]
    if len(values) not in (1, 24):
        remedy = "give one number, or one for each of the 24 hours of a day"
        raise InvalidValue(
            "stock_out", f"{len(values)} numbers", "do not match the 24 hours of a day", remedy
        )
    for each in values:
        if isinstance(each, bool) or not isinstance(each, int | float) or not 0 <= each <= 1:
            raise InvalidValue("stock_out", each, "is not a share of the time", "give 0 to 1")
    return tuple(map(float, values))


#: A distribution of times in seconds, as evenly spaced quantiles in ascending order.
Times = Annotated[tuple[float, ...], BeforeValidator(_read_quantiles)]
Shares = Annotated[tuple[float, ...], BeforeValidator(_read_shares)]
Seconds = Annotated[float, BeforeValidator(_read_seconds)]


#: A time in seconds. It is at least one second.
Period = Annotated[float, BeforeValidator(_read_period)]


class Machines(Section):
    """Assumptions about the machines of a scale group in a zone."""

    #: The time from the request of a slice until the slice accepts work, in seconds. Several values
    #: are the quantiles of a distribution (`Times`).
    boot: Times = (120.0,)
    #: The time from the instruction to delete a slice until its last machine is gone, in seconds.
    #: Several values are the quantiles of a distribution (`Times`).
    delete: Times = (30.0,)
    #: The number of preemptions of a preemptible slice for each hour in which the slice is ready.
    preemptions_per_hour: float = Field(default=0.0, ge=0, le=MOST_PER_HOUR)
    #: The number of losses of a slice for reasons other than a preemption, for each hour in which
    #: the slice is ready.
    failures_per_hour: float = Field(default=0.0, ge=0, le=MOST_PER_HOUR)
    #: The share of the time in which the zone has no machines for the group: one number, or one
    #: for each hour of the day (UTC).
    stock_out: Shares = (0.0,)

    @property
    def varies(self) -> bool:
        """Whether anything about the machines happens by chance."""
        often = self.preemptions_per_hour or self.failures_per_hour
        return (
            len({*self.boot}) > 1
            or len({*self.delete}) > 1
            or often > 0
            or any(0 < part < 1 for part in self.stock_out)
        )


class Resubmission(Section):
    """How users submit jobs again that failed or got no hosts within their scheduling timeout."""

    #: The share of jobs, among those that failed or got no hosts, that users submit again, from 0
    #: to 1.
    share: float = Field(default=1.0, ge=0, le=1)
    #: The time from the end of the job until it is submitted again, in seconds.
    after: Times = (600.0,)
    #: The limit on how many times one job is submitted again.
    times: int = Field(default=1, ge=1)

    @property
    def varies(self) -> bool:
        """Whether it is by chance who submits again, or when."""
        return 0 < self.share < 1 or len({*self.after}) > 1


class World(Section):
    """The assumptions of a simulation about machines and users. The defaults are for a trace
    without recorded slices: machines boot in two minutes, and nothing fails.
    """

    #: Assumptions about machines by scale group and zone: `GROUP@ZONE`, `GROUP`, or `*`. For a
    #: slice, only the most specific entry applies; entries are not merged.
    machines: dict[str, Machines] = Field(default_factory=dict)
    #: The shortest duration of a stock-out, in seconds. A stock-out begins and ends at a multiple
    #: of this duration.
    stock_out_lasts: Period = 600.0
    #: The time that a program takes to end when its gang is evicted, in seconds.
    stop: Seconds = 5.0
    #: The time between two checkpoints of a program, in seconds. Its next attempt continues from
    #: the last checkpoint. 0 means that an attempt that is stopped early loses all its work.
    checkpoint_every: Seconds = 0.0
    #: How users submit jobs again; None if they do not.
    resubmit: Resubmission | None = None

    @property
    def varies(self) -> bool:
        """Whether anything happens by chance. If nothing does, all seeds have the same result."""
        people = self.resubmit is not None and self.resubmit.varies
        return people or any(each.varies for each in self.machines.values())

    def has(self, group: str, zone: str) -> bool:
        """Whether there is an entry for a scale group in a zone."""
        return self._entry(group, zone) is not None

    def of(self, group: str, zone: str) -> Machines:
        """Returns the machines of a scale group in a zone."""
        return self._entry(group, zone) or Machines()

    def _entry(self, group: str, zone: str) -> Machines | None:
        keys = (f"{group}@{zone}", group, ANY)
        return next((self.machines[key] for key in keys if key in self.machines), None)


def read_world(text: str, name: str) -> World:
    """Returns the world in a YAML file.

    Args:
        name: the name of the file, for messages.

    Raises:
        InvalidConfig: the file has errors; `problems` lists them with their lines.
    """
    return load_section(World, text, name, 'machines: {"*": {boot: 2m}}')


def write_world(world: World) -> str:
    """Returns the world as YAML, which `read_world` reads."""
    return dump_section(world)
