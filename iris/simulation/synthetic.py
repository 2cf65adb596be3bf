"""Makes a workload from a short description: on one line, or as a YAML file with several kinds of
jobs.

    jobs=1000,days=7,day-night=0.5,users=20,gpu=1|2|4|8,duration=30m..8h

Jobs arrive at random times that are independent of each other. Of several values, separated by `|`,
each is equally frequent; a range of durations has as many between one and two hours as between two
and four. The draws follow from the seed alone: the same description gives the same trace.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from itertools import accumulate, count
from typing import Any, NamedTuple, TypeVar

from iris.config.bounded_yaml import read_mapping
from iris.model.errors import InvalidValue
from iris.model.frozen import Frozen
from iris.model.host.accelerators import TpuRequest, parse_gpu, parse_tpu
from iris.model.host.constraints import SCALE_GROUP, TPU_NAME, check_key, parse_marked
from iris.model.host.resources import Device, Resources
from iris.model.job.spec import MAX_REPLICAS, Band
from iris.model.names import check_name
from iris.model.units import parse_bytes, parse_cpu, parse_duration
from iris.simulation.chance import uniform
from iris.simulation.trace import GangTrace, Heading, Run, Trace
from iris.usage.records import UseEnd

#: The default beginning of a synthetic trace: a Monday.
BEGINS = datetime(2026, 1, 5, tzinfo=UTC)
#: The hour of the day (UTC) at which most jobs arrive.
BUSIEST_HOUR = 14.0
#: The limit on jobs of a synthetic trace.
MOST_JOBS = 1_000_000
_DAY = 24 * 3600.0
_PER = {"m": 60.0, "h": 3600.0, "d": _DAY}
_ONE_LINE = re.compile(r"\s*[\w-]+\s*=")

T = TypeVar("T")


class Span(NamedTuple):
    """A range of durations, in seconds. If both ends are equal, the duration is constant."""

    low: float
    high: float


class Kind(Frozen):
    """One kind of job. If a field has several values, each job draws one of them, and all are
    equally likely. Only `constraint` differs: all of its values apply to each job.
    """

    #: The weight of this kind of job among the kinds: the number of its jobs is proportional to it.
    share: float = 1.0
    #: The ranges of the program's duration, in seconds. Each job draws a range, and from it a
    #: duration.
    duration: tuple[Span, ...] = (Span(3600.0, 3600.0),)
    #: The ranges of the time from the placement of a job until its program starts, in seconds. Each
    #: job draws a range, and from it a time.
    set_up: tuple[Span, ...] = (Span(0.0, 0.0),)
    #: The cores that each host of a job needs, in thousandths. Each job draws one of the values.
    cpu: tuple[int, ...] = (1000,)
    #: The memory that each host of a job needs, in bytes. Each job draws one of the values.
    memory: tuple[int, ...] = (0,)
    #: The disk space that each host of a job needs, in bytes. Each job draws one of the values.
    disk: tuple[int, ...] = (0,)
    #: The GPUs that each host of a job needs; None for no GPUs. Each job draws one of the values.
    gpu: tuple[Device | None, ...] = (None,)
    #: The TPU slices that jobs request; empty if jobs of this kind use no TPUs.
    tpu: tuple[TpuRequest, ...] = ()
    #: The number of hosts that each job needs. Each job draws one of the values.
    hosts: tuple[int, ...] = (1,)
    #: The attribute that the hosts of one job share, if the job needs several.
    gang_by: str = SCALE_GROUP
    priority: tuple[Band, ...] = (Band.INTERACTIVE,)
    #: The names of the users who submit jobs of this kind; empty for all users of the workload.
    user: tuple[str, ...] = ()
    #: The constraints of each job, as texts. The text of a preferred constraint begins with a
    #: question mark.
    constraint: tuple[str, ...] = ()
    #: The share of the jobs that fail at the end of their program, from 0 to 1.
    failed: float = 0.0
    scheduling_timeout: timedelta | None = None


class Synthetic(Frozen):
    """The description of a synthetic workload."""

    #: The number of jobs.
    jobs: int
    days: float
    #: The number of users.
    users: int = 10
    #: How much the arrivals vary over the day: 0 if as many jobs arrive by night as by day; 1 if no
    #: job arrives in the quietest hour.
    day_night: float = 0.0
    seed: int = 0
    kinds: tuple[Kind, ...]


def read_synthetic(text: str, name: str = "synthetic") -> Synthetic:
    """Reads a description.

    Args:
        text: `KEY=VALUE,KEY=VALUE`, or YAML with the same keys, and with the kinds of jobs in the
            list `mix`.
        name: the name of the file, for errors.

    Raises:
        InvalidValue: a key is unknown, or has a value that is not allowed.
    """
    if _ONE_LINE.match(text):
        return _described(dict(_pairs(text)))
    return _described(read_mapping(text, "synthetic", name))


def synthetic_trace(of: Synthetic, begins: datetime = BEGINS) -> Trace:
    """Returns the workload that is described."""
    ends = begins + timedelta(days=of.days)
    shares = list(accumulate(kind.share for kind in of.kinds))
    arrivals = sorted((_arrival(of, begins, job), job) for job in range(of.jobs))
    gangs = []
    for number, (at, job) in enumerate(arrivals, 1):
        place = uniform(of.seed, "kind", job) * shares[-1]
        kind = next(kind for kind, share in zip(of.kinds, shares, strict=True) if place < share)
        gangs.append(_gang(of, kind, job, number, round(at, 3)))
    return Trace.of(Heading(begins=begins, ends=ends, source="synthetic"), gangs)


def _arrival(of: Synthetic, begins: datetime, job: int) -> float:
    """Returns the seconds from the begin until a job arrives."""
    quietest = 1.0 - of.day_night
    for attempt in count():
        at = uniform(of.seed, "arrival", job, attempt) * of.days * _DAY
        hour = ((begins + timedelta(seconds=at)).timestamp() % _DAY) / 3600
        busy = 0.5 + 0.5 * math.cos((hour - BUSIEST_HOUR) / 24 * 2 * math.pi)
        if uniform(of.seed, "accepted", job, attempt) <= quietest + of.day_night * busy:
            return at
    raise AssertionError("unreachable")


def _gang(of: Synthetic, kind: Kind, job: int, number: int, at: float) -> GangTrace:
    def draw(what: str) -> float:
        return uniform(of.seed, what, job)

    def one(values: Sequence[T], what: str) -> T:
        return values[int(draw(what) * len(values))]

    tpu = one(kind.tpu, "tpu") if kind.tpu else None
    hosts = tpu.hosts if tpu is not None else one(kind.hosts, "hosts")
    users = kind.user or tuple(f"user-{each}" for each in range(1, of.users + 1))
    timeout = kind.scheduling_timeout
    return GangTrace(
        id=f"job-{number}",
        user=one(users, "user"),
        band=one(kind.priority, "priority"),
        at=at,
        resources=Resources(
            cpu_millis=one(kind.cpu, "cpu"),
            memory_bytes=one(kind.memory, "memory"),
            disk_bytes=one(kind.disk, "disk"),
            device=tpu.device if tpu is not None else one(kind.gpu, "gpu"),
        ),
        constraints=kind.constraint,
        tasks=hosts,
        group_by=(TPU_NAME if tpu is not None else kind.gang_by) if hosts > 1 else None,
        runs=(
            Run(
                set_up=_seconds(kind.set_up, draw("set-up")),
                seconds=_seconds(kind.duration, draw("duration")),
                end=UseEnd.FAILED if draw("failed") < kind.failed else UseEnd.SUCCEEDED,
            ),
        ),
        patience=timeout.total_seconds() if timeout is not None else None,
    )


def _seconds(spans: Sequence[Span], at: float) -> float:
    """Returns a time of these ranges: each range is equally frequent, and within a range its
    logarithm is evenly distributed.
    """
    place = at * len(spans)
    low, high = spans[int(place)]
    return round(low * (high / low) ** (place % 1.0), 3) if low < high else low


# The reading of descriptions.


def _pairs(text: str) -> Iterable[tuple[str, str]]:
    found = set()
    for part in text.split(","):
        key, equals, value = part.partition("=")
        if not equals:
            remedy = "write KEY=VALUE,KEY=VALUE; separate several values of a key by |"
            raise InvalidValue("synthetic", part, "is not KEY=VALUE", remedy)
        if key.strip() in found:
            remedy = "give it once; separate several values by |"
            raise InvalidValue("synthetic", key.strip(), "is given twice", remedy)
        found.add(key.strip())
        yield key.strip(), value.strip()


def _described(values: Mapping[str, Any]) -> Synthetic:
    """Returns the description with these keys. Keys about jobs hold for all kinds that do not have
    them.
    """
    given = {key.replace("_", "-"): value for key, value in values.items()}
    mix = given.pop("mix", None)
    _check_keys(given, (*_OF_ALL, *_OF_A_KIND, "mix"), "")
    whole = {key: read(given[key], key) for key, read in _OF_ALL.items() if key in given}
    shared = {key: value for key, value in given.items() if key in _OF_A_KIND}
    kinds = [_kind(shared, {}, "")] if mix is None else list(_mix(mix, shared))
    jobs, days = _extent(whole.pop("jobs", None), whole.pop("rate", None), whole.pop("days", None))
    fields = {key.replace("-", "_"): value for key, value in whole.items()}
    return Synthetic(jobs=jobs, days=days, kinds=tuple(kinds), **fields)


def _extent(jobs: int | None, rate: float | None, days: float | None) -> tuple[int, float]:
    """Returns the number of jobs, and the days in which they arrive.

    Args:
        rate: the jobs for each day.
    """
    if jobs is None and rate is None:
        remedy = "add jobs=1000 or rate=12/h"
        raise InvalidValue("synthetic", "jobs", "is missing, and so is 'rate'", remedy)
    length = 7.0 if days is None else days
    expected = math.inf if jobs is None else float(jobs)
    if rate is not None and jobs is not None:  # what ends first counts
        length = jobs / rate if days is None else min(days, jobs / rate)
    if rate is not None:
        expected = min(expected, rate * length)
    if expected > MOST_JOBS or round(expected) < 1:
        remedy = f"change jobs, rate or days so that there are 1 to {MOST_JOBS:,}"
        given = f"{expected:,.0f} jobs"
        raise InvalidValue("synthetic", given, "result from the description", remedy)
    return round(expected), length


def _mix(mix: object, shared: Mapping[str, Any]) -> Iterable[Kind]:
    if not isinstance(mix, list) or not mix:
        raise InvalidValue("mix", mix, "is not a list", "begin each kind of job with a dash")
    for number, each in enumerate(mix):
        where = f"mix.{number}."
        if not isinstance(each, Mapping):
            raise InvalidValue(
                where[:-1], each, "is not a list of keys with values", "write KEY: VALUE"
            )
        own = {str(key).replace("_", "-"): value for key, value in each.items()}
        _check_keys(own, _OF_A_KIND, where)
        yield _kind(shared, own, where)


def _kind(shared: Mapping[str, Any], own: Mapping[str, Any], where: str) -> Kind:
    """Returns a kind of job.

    Args:
        shared: the keys that hold for all kinds.
        own: the keys of this kind.
        where: the place of the own keys, for errors.
    """
    values = {key: _OF_A_KIND[key](value, key) for key, value in shared.items()}
    values |= {key: _OF_A_KIND[key](value, f"{where}{key}") for key, value in own.items()}
    kind = Kind(**{key.replace("-", "_"): value for key, value in values.items()})
    if kind.tpu and ("hosts" in values or "gpu" in values):
        remedy = "leave out hosts and gpu: a TPU slice has hosts of its own"
        text = own.get("tpu", shared.get("tpu"))
        raise InvalidValue(
            f"{where}tpu", text, "cannot be combined with the keys hosts or gpu", remedy
        )
    if max(kind.hosts) > 1 and any(each is not None and each.several for each in kind.gpu):
        remedy = "name one, such as H100x8: programs that compute together need GPUs of one variant"
        text = own.get("gpu", shared.get("gpu"))
        raise InvalidValue(
            f"{where}gpu", text, "does not name one variant for a job on several hosts", remedy
        )
    return kind


def _check_keys(given: Iterable[str], known: Iterable[str], where: str) -> None:
    for key in given:
        if key not in known:
            near = get_close_matches(key, list(known), n=1)
            remedy = f"did you mean {near[0]}?" if near else f"use {', '.join(known)}"
            raise InvalidValue("synthetic", f"{where}{key}", "is an unknown key", remedy)


Reader = Callable[[object, str], Any]


def _several(read: Callable[[str, str], T]) -> Reader:
    """Returns a function that reads one value or several: `A|B`, or a list."""

    def values(value: object, field: str) -> tuple[T, ...]:
        parts = value if isinstance(value, list) else str(value).split("|")
        if not parts:
            raise InvalidValue(field, value, "is empty", "give a value, or leave it out")
        return tuple(read(str(part).strip(), field) for part in parts)

    return values


def _one(read: Callable[[str, str], T]) -> Reader:
    return lambda value, field: read(str(value).strip(), field)


def _number(low: float, high: float) -> Callable[[str, str], float]:
    """Returns a function that reads a number from `low` to `high`."""

    def number(text: str, field: str) -> float:
        try:
            found = float(text)
        except ValueError:
            found = math.nan
        if not low <= found <= high:
            raise InvalidValue(field, text, "is out of range", f"give a number {low:g} to {high:g}")
        return found

    return number


def _whole(low: int, high: int) -> Callable[[str, str], int]:
    """Returns a function that reads a whole number from `low` to `high`."""

    def number(text: str, field: str) -> int:
        if not re.fullmatch(r"\d{1,18}", text) or not low <= int(text) <= high:
            remedy = f"give a whole number from {low:,} to {high:,}"
            raise InvalidValue(field, text, "is out of range", remedy)
        return int(text)

    return number


def _rate(text: str, field: str) -> float:
    """Returns the jobs for each day: of `12/h`, 288."""
    number, _, per = text.partition("/")
    problem = "is not a positive number of jobs per minute, hour or day"
    remedy = "write NUMBER/m, NUMBER/h or NUMBER/d, such as 12/h"
    if per.strip() not in _PER:
        raise InvalidValue(field, text, problem, remedy)
    try:
        found = float(number) / _PER[per.strip()] * _DAY
    except ValueError:
        found = math.nan
    if not 0 < found < math.inf:
        raise InvalidValue(field, text, problem, remedy)
    return found


def _span(text: str, field: str) -> Span:
    low, dots, high = text.partition("..")
    ends = [
        parse_duration(each, field).total_seconds() for each in ((low, high) if dots else (low,))
    ]
    if len(ends) == 2 and not 0 < ends[0] <= ends[1]:
        remedy = "write SHORTEST..LONGEST, such as 30m..8h, both above 0"
        raise InvalidValue(field, text, "is not a range", remedy)
    return Span(ends[0], ends[-1])


def _gpus(text: str, field: str) -> Device | None:
    return None if text == "0" else parse_gpu(text, field)


def _band(text: str, field: str) -> Band:
    if text not in list(Band):
        raise InvalidValue(field, text, "is no priority", f"use {', '.join(Band)}")
    return Band(text)


def _constraint(text: str, _: str) -> str:
    return parse_marked(text).marked


def _name(text: str, field: str) -> str:
    return check_name(field, text)


#: The keys of a workload's description that apply to all kinds of jobs, each with the function that
#: reads its value.
_OF_ALL: dict[str, Reader] = {
    "jobs": _one(_whole(1, MOST_JOBS)),
    "rate": _one(_rate),
    "days": _one(_number(0.001, 3660)),
    "users": _one(_whole(1, 100_000)),
    "day-night": _one(_number(0, 1)),
    "seed": _one(_whole(0, 2**53)),
}
#: The keys that describe a kind of job, each with the function that reads its value.
_OF_A_KIND: dict[str, Reader] = {
    "share": _one(_number(0.000001, 1e9)),
    "duration": _several(_span),
    "set-up": _several(_span),
    "cpu": _several(lambda text, _: parse_cpu(text)),
    "memory": _several(parse_bytes),
    "disk": _several(parse_bytes),
    "gpu": _several(_gpus),
    "tpu": _several(lambda text, _: parse_tpu(text)),
    "hosts": _several(_whole(1, MAX_REPLICAS)),
    "gang-by": _one(check_key),
    "priority": _several(_band),
    "user": _several(_name),
    "constraint": lambda value, field: tuple(
        _constraint(str(each), field) for each in (value if isinstance(value, list) else [value])
    ),
    "failed": _one(_number(0, 1)),
    "scheduling-timeout": _one(parse_duration),
}
