"""Operators' and users' access to the scheduler: forecasts, closed hosts, pauses and rules."""

import difflib
from datetime import UTC, datetime

from iris.client.client import IrisClient
from iris.client.connect.identity import signed
from iris.messages.scheduler import Answer, Close, Configure, Open, Pause, Resume
from iris.model.bounds import check_demands
from iris.model.errors import NotFound, Rejected
from iris.model.hosts import ClosedBy, Closure
from iris.model.jobs import JobSpec
from iris.model.requests import Request, request_for
from iris.model.rules import Rules
from iris.scheduling.forecast import Forecast
from iris.scheduling.refusals import Refusal


def _trial(spec: JobSpec) -> Request:
    """Builds the request that the job would make; for independent tasks, that of the first task.

    Raises:
        InvalidValue: the job demands more of its hosts than the scheduler can represent.
    """
    check_demands(spec)
    return request_for(spec, index=0, attempt=1, run_id="forecast", owner="forecast", submitted_at=datetime.now(UTC))


async def forecast(client: IrisClient, spec: JobSpec) -> Forecast:
    """Returns what the scheduler would do with the job if it were submitted now. Changes nothing.

    Raises:
        Unreachable: no control plane answers.
    """
    return await client.ask_scheduler("forecast", _trial(spec), Forecast)


async def never(client: IrisClient, spec: JobSpec) -> Refusal | None:
    """Returns why no existing host could ever run the job; None when some could.

    Raises:
        Unreachable: no control plane answers.
    """
    return (await client.ask_scheduler("never", _trial(spec), Answer)).refusal


async def cordon(client: IrisClient, host: str, reason: str = "") -> None:
    """Closes the host to new work. What runs there continues.

    Raises:
        NotFound: there is no such host.
    """
    await _tell_of_host(client, Close(host_id=host, closure=Closure(by=ClosedBy.CORDON, reason=signed(reason))))


async def drain(client: IrisClient, host: str, reason: str = "") -> None:
    """Closes the host to new work and evicts what runs there. Each program gets its grace period, and returns to the queue.

    Raises:
        NotFound: there is no such host.
    """
    await _tell_of_host(client, Close(host_id=host, closure=Closure(by=ClosedBy.DRAIN, reason=signed(reason)), evict=True))


async def uncordon(client: IrisClient, host: str) -> None:
    """Opens the host to work again, whatever closed it.

    Raises:
        NotFound: there is no such host.
    """
    await _tell_of_host(client, Open(host_id=host))


async def pause(client: IrisClient, reason: str = "", group: str | None = None) -> None:
    """Stops new placements in the whole cluster or in one scale group. What runs continues.

    Raises:
        NotFound: no host belongs to such a group.
    """
    try:
        await client.tell_scheduler(Pause(reason=signed(reason), group=group))
    except Rejected as error:  # the only reason for a refusal
        raise NotFound(str(error)) from None


async def resume(client: IrisClient, group: str | None = None) -> None:
    """Allows new placements again.

    Raises:
        Rejected: that group is not paused.
    """
    await client.tell_scheduler(Resume(group=group))


async def configure(client: IrisClient, rules: Rules) -> None:
    """Sends other rules to the scheduler."""
    await client.tell_scheduler(Configure(rules=rules))


async def _tell_of_host(client: IrisClient, message: Close | Open) -> None:
    try:
        await client.tell_scheduler(message)
    except Rejected as error:  # the only reason for a refusal
        near = difflib.get_close_matches(message.host_id, [view.host.id for view in await client.hosts()], n=3)
        hint = f"did you mean {', '.join(near)}?" if near else "`iris host list` lists them"
        raise NotFound(f"{error}; {hint}") from None
