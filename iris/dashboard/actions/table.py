"""The actions of the dashboard, by the last part of their addresses. They use the same methods of
the client as the command line.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from iris.client.client import AsyncIrisClient
from iris.client.connect.identity import acting_as, full_job_id, signed
from iris.client.jobs.client import CancelAnswer
from iris.model.errors import InvalidValue
from iris.model.job.spec import Band
from iris.model.units import parse_duration

#: The limit on characters of the reason that a user gives for an action.
MOST_REASON = 300
#: The name that stands for the user in the reasons of actions. The dashboard does not know its
#: users.
ACTOR = "dashboard"


class Field(NamedTuple):
    """An input field in the form that the dashboard shows for an action."""

    name: str
    label: str
    hint: str = ""
    #: The values from which the user chooses; empty for a text field.
    choices: tuple[str, ...] = ()


class Order(NamedTuple):
    """The values of a submitted form."""

    #: The name of the job, host, slice or scale group; empty for the whole cluster.
    target: str
    #: The id of the job's run that the form showed to the user; empty for other targets.
    run: str
    #: All values of the form, by the names of their fields.
    values: Mapping[str, str]

    @property
    def reason(self) -> str:
        """The reason, in one line.

        Raises:
            InvalidValue: it is too long.
        """
        text = " ".join(self.values.get("reason", "").split())
        if len(text) > MOST_REASON:
            problem = f"has more than {MOST_REASON} characters"
            raise InvalidValue("reason", f"{text[:20]}…", problem, "shorten it")
        return text


#: Returns what the form of an action contains about the target: the id of the job's run, which is
#: empty for other targets, and a sentence about the target.
#:
#: Raises:
#:     NotFound: there is no such job, host, slice or group.
See = Callable[[AsyncIrisClient, str], Awaitable[tuple[str, str]]]
#: Performs the action, and returns a message for the user.
Do = Callable[[AsyncIrisClient, Order], Awaitable[str]]


class Action(NamedTuple):
    """An action that changes the cluster, and that users start from a page."""

    #: The text of the link and of the button that start the action.
    verb: str
    #: The kind of the target, for the form: `job`, `host`, `slice`, `scale group` or `cluster`.
    kind: str
    #: A sentence for the form that describes the effect of the action.
    effect: str
    see: See
    do: Do
    fields: tuple[Field, ...] = ()
    #: Whether the action ends programs that run.
    ends: bool = False


REASON = Field("reason", "Reason", "for the people who look at it")


# -- what the question shows
# --------------------------------------------------------------------------------------------------


async def _see_job(client: AsyncIrisClient, job: str) -> tuple[str, str]:
    full_job_id(job)
    source = await client.jobs.log_source(job)
    status = await client.jobs.status(job, source.run_id)
    return source.run_id or "", f"it is {status.state}, and belongs to {status.user}"


async def _see_host(client: AsyncIrisClient, host: str) -> tuple[str, str]:
    view = await client.hosts.show(host)
    closed = f"takes no new tasks ({view.closed})" if view.closed else "takes tasks"
    return "", f"it {closed}; {len(view.running)} task(s) run on it"


async def _see_slice(client: AsyncIrisClient, slice_id: str) -> tuple[str, str]:
    status = await client.slices.show(slice_id)
    return "", f"it is {status.state}, with {len(status.hosts)} host(s)"


async def _see_group(client: AsyncIrisClient, group: str) -> tuple[str, str]:
    paused = (await client.cluster.status()).paused_groups.get(group)
    return "", f"it is paused: {paused}" if paused is not None else "it is not paused"


async def _see_cluster(client: AsyncIrisClient, _: str) -> tuple[str, str]:
    paused = (await client.cluster.status()).paused
    return "", f"it is paused: {paused}" if paused is not None else "it is not paused"


# -- what the actions do
# --------------------------------------------------------------------------------------------------


async def _cancel(client: AsyncIrisClient, order: Order) -> str:
    answer: CancelAnswer = await client.jobs.cancel(
        order.target, signed(order.reason) if order.reason else "", order.run
    )
    if answer.ended is not None:
        return f"job {order.target} has ended already: {answer.ended}"
    return f"job {order.target} is being cancelled"


async def _hold(client: AsyncIrisClient, order: Order) -> str:
    await client.jobs.hold(order.target, order.reason, order.run)
    return f"job {order.target} is held"


async def _release(client: AsyncIrisClient, order: Order) -> str:
    await client.jobs.release(order.target, order.run)
    return f"job {order.target} is released"


async def _set_priority(client: AsyncIrisClient, order: Order) -> str:
    wanted = order.values.get("priority", "")
    if wanted not in [band.value for band in Band]:
        raise InvalidValue("priority", wanted, "is no priority", f"use one of {', '.join(Band)}")
    await client.jobs.set_priority(order.target, Band(wanted), order.run)
    return f"job {order.target} has priority {wanted}"


async def _rerun(client: AsyncIrisClient, order: Order) -> str:
    # The new job belongs to the user of the earlier one, whose files and secrets it uses.
    with acting_as(order.target.partition("/")[0]):
        failed = order.values.get("tasks") == FAILED_TASKS
        job = await client.job(order.target).rerun(failed=failed)
    return f"job {job.id} was submitted again" if job is not None else "no task has failed"


async def _cordon(client: AsyncIrisClient, order: Order) -> str:
    await client.hosts.cordon(order.target, order.reason)
    return f"host {order.target} takes no new tasks"


async def _uncordon(client: AsyncIrisClient, order: Order) -> str:
    await client.hosts.uncordon(order.target)
    return f"host {order.target} takes tasks again"


async def _drain_host(client: AsyncIrisClient, order: Order) -> str:
    text = order.values.get("deadline", "").strip()
    deadline = parse_duration(text, "deadline") if text else None
    return await client.hosts.drain(order.target, order.reason, deadline)


async def _drain_slice(client: AsyncIrisClient, order: Order) -> str:
    slice_id, state = await client.slices.drain(order.target, order.reason)
    return f"slice {slice_id} {state}"


async def _delete_slice(client: AsyncIrisClient, order: Order) -> str:
    slice_id, state = await client.slices.delete(order.target, order.reason)
    return f"slice {slice_id} {state}"


async def _pause(client: AsyncIrisClient, order: Order) -> str:
    await client.cluster.pause(order.reason, order.target or None)
    return f"{_part(order)} is paused"


async def _resume(client: AsyncIrisClient, order: Order) -> str:
    await client.cluster.resume(order.target or None)
    return f"{_part(order)} is resumed"


def _part(order: Order) -> str:
    return f"scale group {order.target}" if order.target else "the cluster"


FAILED_TASKS = "only those that failed"
_NO_NEW = "No new task is placed there. Running tasks continue."
_PAUSE = "No new task is placed. Running tasks continue, and waiting jobs show the reason."
_RESUME = "Tasks are placed again."
ACTIONS: dict[str, Action] = {
    "cancel-job": Action(
        "Cancel",
        "job",
        "Its programs get SIGTERM, and after their grace period SIGKILL. Its children end, too.",
        _see_job,
        _cancel,
        (REASON,),
        ends=True,
    ),
    "hold-job": Action(
        "Hold",
        "job",
        "No task of it starts until it is released. Running tasks continue.",
        _see_job,
        _hold,
        (REASON,),
    ),
    "release-job": Action("Release", "job", "Its tasks may start.", _see_job, _release),
    "set-job-priority": Action(
        "Change priority of",
        "job",
        "It moves to the end of the queue of that priority. Running tasks continue.",
        _see_job,
        _set_priority,
        (Field("priority", "Priority", choices=tuple(Band)),),
    ),
    "rerun-job": Action(
        "Run again",
        "job",
        "A new job of the same name and user runs the same program with the same files.",
        _see_job,
        _rerun,
        (Field("tasks", "Tasks", choices=("all", FAILED_TASKS)),),
    ),
    "cordon-host": Action("Cordon", "host", _NO_NEW, _see_host, _cordon, (REASON,)),
    "uncordon-host": Action(
        "Uncordon",
        "host",
        "It takes tasks again, even after a drain or a quarantine.",
        _see_host,
        _uncordon,
    ),
    "drain-host": Action(
        "Drain",
        "host",
        "No new task is placed there. Its tasks are evicted, and return to the queue.",
        _see_host,
        _drain_host,
        (REASON, Field("deadline", "Time for its tasks to end", "such as 30m; empty: none")),
        ends=True,
    ),
    "drain-slice": Action(
        "Drain",
        "slice",
        "No new task is placed there. It is deleted when its tasks have ended.",
        _see_slice,
        _drain_slice,
        (REASON,),
    ),
    "delete-slice": Action(
        "Delete",
        "slice",
        "Its machines are deleted after the grace period of its tasks, which return to the queue.",
        _see_slice,
        _delete_slice,
        (REASON,),
        ends=True,
    ),
    "pause-group": Action("Pause", "scale group", _PAUSE, _see_group, _pause, (REASON,)),
    "resume-group": Action("Resume", "scale group", _RESUME, _see_group, _resume),
    "pause-cluster": Action("Pause", "cluster", _PAUSE, _see_cluster, _pause, (REASON,)),
    "resume-cluster": Action("Resume", "cluster", _RESUME, _see_cluster, _resume),
}
