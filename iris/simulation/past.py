"""Makes a trace of the records of use: the workload of a cluster's own past.

The attempts of a gang are put together. An attempt that was preempted, or never started, is left
out: the simulation has preemptions of its own. Jobs that never had hosts have no records, so they
are not in the trace.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from iris.model.host.constraints import (
    DEVICE_TYPE,
    DEVICE_VARIANT,
    GPU_MEMORY,
    GPU_MODEL,
    HOST_ID,
    PREEMPTIBLE,
    REGION,
    SCALE_GROUP,
    TPU_NAME,
    TPU_TOPOLOGY,
    TPU_VM_COUNT,
    TPU_WORKER_ID,
    ZONE,
    Constraint,
    parse_marked,
)
from iris.model.host.resources import ANY_VARIANT, Device, DeviceKind, Resources
from iris.model.names import attempt_of_key, gang_of_key
from iris.simulation.trace import GangTrace, Heading, Run, SliceTrace, Trace
from iris.usage.records import AttemptUse, SliceUse, Use, UseEnd

#: For each way in which a recorded attempt can end by itself, how the attempt ends in the trace.
_ENDS = {
    UseEnd.SUCCEEDED: UseEnd.SUCCEEDED,
    UseEnd.FAILED: UseEnd.FAILED,
    UseEnd.CANCELLED: UseEnd.CANCELLED,
    UseEnd.SET_UP_FAILED: UseEnd.SET_UP_FAILED,
    UseEnd.UNKNOWN: UseEnd.CANCELLED,  # the job was terminated
}
#: The ends of attempts whose program may never have started. If no start is recorded, the whole
#: time of the attempt counts as set-up.
_WITHOUT_PROGRAM = (UseEnd.CANCELLED, UseEnd.SET_UP_FAILED, UseEnd.PREEMPTED, UseEnd.NEVER_STARTED)
#: The attributes whose values are names of hosts or slices. Constraints on them are left out of the
#: trace, because no host of a simulation has these names.
_NAMES_OF_MACHINES = (HOST_ID, TPU_NAME)
#: Attributes whose values come from the provider or the configuration. A constraint on one of them
#: stays in the trace even if its value is also the name of a user or job, such as a user with the
#: name of a zone.
_WITHOUT_NAMES = frozenset(
    {
        REGION,
        ZONE,
        PREEMPTIBLE,
        DEVICE_TYPE,
        DEVICE_VARIANT,
        GPU_MODEL,
        GPU_MEMORY,
        TPU_WORKER_ID,
        TPU_TOPOLOGY,
        TPU_VM_COUNT,
        SCALE_GROUP,
    }
)


class _Time(NamedTuple):
    """The period of time that the trace describes."""

    since: datetime
    until: datetime

    def has(self, begin: datetime, end: datetime) -> bool:
        """Returns whether something that lasted from `begin` to `end` overlaps the time."""
        return begin < self.until and end > self.since

    def seconds(self, at: datetime) -> float:
        """Returns the seconds from the begin until `at`; less than 0 if it was before."""
        return (at - self.since).total_seconds()


def trace_of(
    uses: Iterable[Use], since: datetime, until: datetime, *, names: bool = False
) -> Trace:
    """Returns the workload and the slices of a time.

    A gang that ran or waited at `since` arrives at the begin, with the rest of its run. What runs
    at `until` is cut off, and counts as having succeeded then.

    Args:
        uses: the records of the uses that overlap the time, each once; open uses, too.
        names: whether the trace has the names of users and jobs. Otherwise it has numbers in the
            order of arrival.
    """
    time = _Time(since, until)
    attempts: dict[tuple[str, str], list[AttemptUse]] = {}
    slices = []
    for use in uses:
        if isinstance(use, SliceUse):
            # The slices of machines that joined by themselves have no group.
            if use.group and time.has(use.requested_at, use.gone_at):
                slices.append(use)
        elif time.has(use.placed_at, use.ended_at):
            attempts.setdefault(gang_of_key(use.id), []).append(use)
    gangs = [_PastGang(gang, uses, time) for (gang, _), uses in attempts.items()]
    gangs.sort(key=lambda gang: (gang.arrival, gang.name, gang.first.id))
    private = frozenset[str]() if names else _names_in(gangs)
    named = _Names() if names else _Numbers()
    return Trace.of(
        Heading(begins=since, ends=until, source="records of use"),
        [gang.trace(named, private) for gang in gangs],
        _slices(slices, time, names=names),
    )


class _PastGang:
    """The recorded attempts of one gang.

    Args:
        name: the id of the task, or of the job if the gang is the whole job.
        uses: the records of its attempts that overlap `time`.
        time: the period that the trace describes.
    """

    def __init__(self, name: str, uses: list[AttemptUse], time: _Time) -> None:
        self.name = name
        self._time = time
        self._uses = sorted(uses, key=lambda use: (attempt_of_key(use.id), use.placed_at))
        self.first = self._uses[0]
        self._asked = next((use.asked for use in self._uses if use.asked is not None), None)
        #: The time at which the gang first asked for hosts. If the gang's workflow did not report
        #: this time, it is the time of the first placement.
        self.arrival = self._asked.at if self._asked is not None else self.first.placed_at
        self.arrival = min(self.arrival, self.first.placed_at)

    def trace(self, named: "_Names | _Numbers", private: Collection[str]) -> GangTrace:
        """Returns the gang.

        Args:
            private: names that no constraint may contain.
        """
        first, asked, time = self.first, self._asked, self._time
        began_here = self.arrival >= time.since
        queued_at = (asked and asked.queued_at) or (None if began_here else self.arrival)
        knows_wait = began_here and asked is not None and attempt_of_key(first.id) == 1
        timeout = asked.scheduling_timeout if asked is not None else None
        user, job, gang = named.of(first.user, first.job, self.name)
        group_by, groups = _groups(first)
        return GangTrace(
            id=gang,
            job=job if job != gang else "",
            user=user,
            band=first.band,
            at=max(0.0, time.seconds(self.arrival)),
            queued_at=time.seconds(queued_at) if queued_at is not None else None,
            resources=_resources_of_host(first),
            constraints=_usable(asked.constraints if asked is not None else (), private),
            tasks=first.hosts,
            tasks_per_host=first.tasks_per_host,
            group_by=asked.group_by if asked is not None else group_by,
            groups=asked.groups if asked is not None else groups,
            tags=named.tags(first.tags),
            limits=asked.limits if asked is not None else {},
            runs=self._runs(),
            patience=timeout.total_seconds() if timeout is not None else None,
            waited=(first.placed_at - self.arrival).total_seconds() if knows_wait else None,
        )

    def _runs(self) -> tuple[Run, ...]:
        """Returns the attempts that ended by themselves.

        If the last attempts did not, nobody knows how long the gang would have run. It runs as long
        as the longest of them then, and is cancelled.
        """
        runs: list[Run] = []
        lost: list[Run] = []
        for use in self._uses:
            end = self._end_of(use)
            if end is None:
                lost.append(self._run(use, UseEnd.CANCELLED))
            else:
                runs.append(self._run(use, end))
                lost.clear()
        if lost:
            runs.append(max(lost, key=lambda run: (run.seconds, run.set_up)))
        return tuple(runs)

    def _end_of(self, use: AttemptUse) -> UseEnd | None:
        """Returns how the attempt ended by itself; None if it did not.

        The record of a placement whose gang got other hosts for the same attempt has a time after
        the key: these hosts were lost.
        """
        if use.ended_at > self._time.until or use.end is UseEnd.OPEN:
            return UseEnd.SUCCEEDED
        if use.end is UseEnd.UNKNOWN and use is not self._uses[-1]:
            return None
        return _ENDS.get(use.end)

    def _run(self, use: AttemptUse, end: UseEnd) -> Run:
        began = max(use.placed_at, self._time.since)
        ended = min(use.ended_at, self._time.until)
        started = use.started_at
        if started is None:  # no program started, or the time is not known
            started = ended if use.end in _WITHOUT_PROGRAM else began
        started = min(max(started, began), ended)
        return Run(
            set_up=(started - began).total_seconds(),
            seconds=(ended - started).total_seconds(),
            end=end,
        )


class _Names:
    """Keeps the names of users, jobs and gangs, for a trace that is not anonymous. If a job was
    submitted again under its name, later submissions get the suffix #2, #3 and so on.
    """

    def __init__(self) -> None:
        self._gangs: dict[str, int] = {}

    def of(self, user: str, job: str, gang: str) -> tuple[str, str, str]:
        """Returns the names of a user, a job and a gang in the trace."""
        again = self._gangs[gang] = self._gangs.get(gang, 0) + 1
        suffix = f"#{again}" if again > 1 else ""
        return user, f"{job}{suffix}", f"{gang}{suffix}"

    def tags(self, tags: Mapping[str, str]) -> tuple[str, ...]:
        """Returns the tags of a job in the trace."""
        return tuple(f"{key}={value}" for key, value in sorted(tags.items()))


class _Numbers:
    """Replaces the names of users and jobs by numbers, in the order in which the names
    first occur.
    """

    def __init__(self) -> None:
        self._names = _Names()
        self._users: dict[str, str] = {}
        self._jobs: dict[str, str] = {}

    def of(self, user: str, job: str, gang: str) -> tuple[str, str, str]:
        """Returns the names of a user, a job and a gang in the trace."""
        _, job_again, _ = self._names.of(user, job, gang)
        number = self._jobs.setdefault(job_again, f"job-{len(self._jobs) + 1}")
        user = self._users.setdefault(user, f"user-{len(self._users) + 1}")
        return user, number, f"{number}{gang.removeprefix(job)}"

    def tags(self, tags: Mapping[str, str]) -> tuple[str, ...]:
        """Returns no tags, because they may contain names."""
        return ()


def _names_in(gangs: Iterable[_PastGang]) -> frozenset[str]:
    """Returns the names of all users and jobs, and the parts of the names of child jobs."""
    texts = {each for gang in gangs for each in (gang.first.user, gang.first.job, gang.name)}
    return frozenset(texts | {part for text in texts for part in text.split("/")})


def _resources_of_host(use: AttemptUse) -> Resources:
    """Returns what the gang held on each of its hosts."""
    kind = DeviceKind.TPU if use.tpu_chips else DeviceKind.GPU
    devices = (use.tpu_chips or use.gpus) // use.hosts
    return Resources(
        cpu_millis=use.cpu_millis // use.hosts,
        memory_bytes=use.memory_bytes // use.hosts,
        disk_bytes=use.disk_bytes // use.hosts,
        device=Device(kind=kind, variant=use.variant or ANY_VARIANT, count=devices)
        if devices
        else None,
    )


def _groups(use: AttemptUse) -> tuple[str | None, int]:
    """Returns what the hosts of a gang probably had to share, and the number of groups, if its
    workflow did not tell it.
    """
    if use.hosts == 1:
        return None, 1
    slices = max(1, len(use.slices))
    if use.tpu_chips:
        return TPU_NAME, slices if use.hosts % slices == 0 else 1
    return SCALE_GROUP, 1


def _usable(texts: Sequence[str], private: Collection[str]) -> tuple[str, ...]:
    """Returns the constraints that say something about the hosts of another cluster, and contain no
    name.
    """
    constraints = map(parse_marked, texts)
    return tuple(each.marked for each in constraints if not _names_something(each, private))


def _names_something(constraint: Constraint, private: Collection[str]) -> bool:
    if constraint.key in _NAMES_OF_MACHINES:
        return True
    texts = (constraint.key, *constraint.values)
    return constraint.key not in _WITHOUT_NAMES and any(each in private for each in texts)


def _slices(uses: Iterable[SliceUse], time: _Time, *, names: bool) -> list[SliceTrace]:
    """Returns the slices; those that still exist at the end are open."""
    ordered = sorted(uses, key=lambda use: (use.requested_at, use.id))
    return [
        SliceTrace(
            id=use.id if names else f"slice-{number}",
            group=use.group,
            zone=use.zone,
            requested=time.seconds(use.requested_at),
            ready=_before(use.ready_at, time),
            gone=time.seconds(min(use.gone_at, time.until)),
            fault=use.fault if use.gone_at <= time.until else None,
            open=use.open or use.gone_at > time.until,
        )
        for number, use in enumerate(ordered, 1)
    ]


def _before(at: datetime | None, time: _Time) -> float | None:
    """Returns the seconds until `at`; None if it was not within the time."""
    return time.seconds(at) if at is not None and at <= time.until else None
