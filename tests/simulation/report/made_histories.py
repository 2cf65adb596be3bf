"""Histories of simulations for tests. Times are hours after a Monday's midnight."""

from collections.abc import Sequence
from typing import Any

from iris.model.host.resources import Resources
from iris.model.job.spec import Band
from iris.model.slice.provisioning import SliceFault
from iris.model.states import TaskState
from iris.model.units import GIB
from iris.scheduling.placement.refusals import RefusalCode
from iris.simulation.history import GangHistory, History, Placed, Reason, Refused, Sample, job_of
from iris.simulation.report.answers import Answers, answers_of
from iris.simulation.trace import GangTrace, Run
from iris.usage.accounting import Accounting
from iris.usage.records import AttemptUse, SliceUse
from tests.usage.made_uses import DOLLAR, at, attempt, slice_use

#: A dollar for a host's hour, and a team.
MONEY = Accounting(currency="USD", rates=DOLLAR, teams={"nlp": ("ada",)})


def gang(
    number: int,
    asked: float,
    placed: float | None,
    ended: float | None,
    *,
    user: str = "ada",
    band: Band = Band.BATCH,
    wants: Resources | None = None,
    state: TaskState | None = TaskState.SUCCEEDED,
    **fields: Any,
) -> GangHistory:
    """A gang that asked, got slice s1 and ended at these hours."""
    tasks = fields.pop("tasks", 1)
    trace = GangTrace(
        id=f"g{number}",
        user=user,
        band=band,
        at=3600 * asked,
        resources=wants or Resources(cpu_millis=8000, memory_bytes=32 * GIB),
        tasks=tasks,
        group_by="tpu-name" if tasks > 1 else None,
        runs=(Run(seconds=60),),
    )
    reasons = [
        Reason(at(hours), RefusalCode(code), message)
        for hours, code, message in fields.pop("reasons", ())
    ]
    return GangHistory(
        trace,
        at(asked),
        attempts=[] if placed is None else [Placed(at(placed), "cpu", ("s1",))],
        state=state if ended is not None else None,
        ended_at=None if ended is None else at(ended),
        reasons=reasons,
        **fields,
    )


def history(
    gangs: Sequence[GangHistory],
    uses: Sequence[AttemptUse | SliceUse] = (),
    faults: Sequence[Refused] = (),
    samples: Sequence[Sample] = (),
    *,
    ends: float = 24,
    stopped: float = 24,
    groups: tuple[str, ...] = ("cpu",),
) -> History:
    """What happened in a day."""
    return History(
        begins=at(0),
        ends=at(ends),
        stopped=at(stopped),
        groups=groups,
        gangs=list(gangs),
        uses=list(uses),
        faults=list(faults),
        samples=list(samples),
    )


def held(number: int, of: GangHistory, **fields: Any) -> AttemptUse:
    """The record of a gang that held one host from its placement to its end."""
    trace = of.trace
    begin = (of.attempts[0].at - at(0)).total_seconds() / 3600
    end = (of.ended_at - at(0)).total_seconds() / 3600 if of.ended_at else 24.0
    own = {"job": job_of(trace, number), "user": trace.user, "band": trace.band}
    return attempt(begin, end, **{**own, "id": trace.id, "started_at": at(begin), **fields})


def refused(hours: float, slice_id: str, fault: SliceFault, group: str = "cpu") -> Refused:
    return Refused(at(hours), slice_id, group, "europe-west4-a", fault)


def a_day(longest: float = 4.0) -> History:
    """A small day: one slice of a host, four gangs, and a second slice that is lost.

    Args:
        longest: how many hours the last gang waits.
    """
    gangs = [
        gang(1, 0, 1, 3),
        gang(2, 1, 3, 5, user="bob", band=Band.PRODUCTION, evictions=1),
        gang(3, 2, None, 4, state=TaskState.UNSCHEDULABLE, user="<b>bob</b>"),
        gang(
            4,
            4,
            4 + longest,
            12,
            state=TaskState.FAILED,
            losses=1,
            reasons=[(4.5, "BUSY", "needs 1 free host"), (5.0, "SCALING", "a slice <boots>")],
        ),
    ]
    uses = [
        slice_use(0, 1, 13),
        slice_use(5, 7, 8, id="s2", reason="preempted"),
        slice_use(5, None, 6, id="s3"),
        held(1, gangs[0]),
        held(2, gangs[1], slices=("s2", "s1"), host_share=2.0, hosts=2),
        held(4, gangs[3]),
    ]
    faults = [
        refused(8, "s2", SliceFault.PREEMPTED),
        refused(6, "s3", SliceFault.STOCK_OUT),
    ]
    samples = [
        Sample(at(hours), (0, 0, int(hours) % 3), 1, (1,), (0.25 * (int(hours) % 4),))
        for hours in range(24)
    ]
    return history(gangs, uses, faults, samples)


def answers(longest: float = 4.0) -> Answers:
    return answers_of(a_day(longest), MONEY)
