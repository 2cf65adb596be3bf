"""The scheduler, as users who plan and operators who intervene see it: forecasts, closed hosts, pauses, rules."""

import difflib
from datetime import UTC, datetime

from iris.client.client import IrisClient
from iris.client.identity import signed
from iris.errors import NotFound, Rejected
from iris.forecast import Forecast
from iris.gangs import Request, request_for
from iris.hosts import ClosedBy, Closure
from iris.jobs import JobSpec
from iris.placement import Rules
from iris.refusals import Refusal
from iris.workflows.messages import Answer, Close, Configure, Open, Pause, Resume


def _trial(spec: JobSpec) -> Request:
    """What the job would ask for; of tasks that go their own ways, the first."""
    return request_for(spec, index=0, attempt=1, run_id="forecast", owner="forecast", submitted_at=datetime.now(UTC))


async def forecast(client: IrisClient, spec: JobSpec) -> Forecast:
    """What the scheduler would do with the job if it were submitted now. Nothing is changed.

    Raises:
        Unreachable: no control plane answers.
    """
    return await client.ask_scheduler("forecast", _trial(spec), Forecast)


async def never(client: IrisClient, spec: JobSpec) -> Refusal | None:
    """Why no host there is could ever run the job; None when some could.

    Raises:
        Unreachable: no control plane answers.
    """
    return (await client.ask_scheduler("never", _trial(spec), Answer)).refusal


async def cordon(client: IrisClient, host: str, reason: str = "") -> None:
    """Place nothing new on the host; what runs there runs on.

    Raises:
        NotFound: there is no such host.
    """
    await _tell_of_host(client, Close(host_id=host, closure=Closure(by=ClosedBy.CORDON, reason=signed(reason))))


async def drain(client: IrisClient, host: str, reason: str = "") -> None:
    """Place nothing new on the host and evict what runs there; each program has its grace, and goes back into the queue.

    Raises:
        NotFound: there is no such host.
    """
    await _tell_of_host(client, Close(host_id=host, closure=Closure(by=ClosedBy.DRAIN, reason=signed(reason)), evict=True))


async def uncordon(client: IrisClient, host: str) -> None:
    """Let the host take work again, whoever closed it.

    Raises:
        NotFound: there is no such host.
    """
    await _tell_of_host(client, Open(host_id=host))


async def pause(client: IrisClient, reason: str = "", group: str | None = None) -> None:
    """Place nothing new, in the whole cluster or in one scale group; what runs runs on.

    Raises:
        NotFound: no host belongs to such a group.
    """
    try:
        await client.tell_scheduler(Pause(reason=signed(reason), group=group))
    except Rejected as error:  # for this reason only
        raise NotFound(str(error)) from None


async def resume(client: IrisClient, group: str | None = None) -> None:
    """Place work again.

    Raises:
        Rejected: that group is not paused.
    """
    await client.tell_scheduler(Resume(group=group))


async def configure(client: IrisClient, rules: Rules) -> None:
    """Give the scheduler other rules."""
    await client.tell_scheduler(Configure(rules=rules))


async def _tell_of_host(client: IrisClient, message: Close | Open) -> None:
    try:
        await client.tell_scheduler(message)
    except Rejected as error:  # for this reason only
        near = difflib.get_close_matches(message.host_id, [view.host.id for view in await client.hosts()], n=3)
        hint = f"did you mean {', '.join(near)}?" if near else "`iris host list` lists them"
        raise NotFound(f"{error}; {hint}") from None
