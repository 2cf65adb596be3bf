"""Endpoints: addresses that the tasks of a job register under a name. An endpoint exists as long as
the attempt that registered it.
"""

import json
import re
from collections.abc import Sequence

from pydantic import Field

from iris.model.errors import InvalidValue
from iris.model.frozen import Frozen
from iris.model.job.arrays import find_task
from iris.model.job.status import TaskStatus
from iris.model.states import ENDED, LIVE

#: The limit on endpoints of a job. The endpoints are in the memory of the job's workflow.
MOST = 1_000
#: The limits on characters of a name and of an address, and on bytes of metadata as JSON.
MAX_NAME, MAX_ADDRESS, MAX_METADATA = 120, 255, 1024
_NAME = re.compile(rf"[a-zA-Z0-9][a-zA-Z0-9._/-]{{0,{MAX_NAME - 1}}}")
_ADDRESS = re.compile(r"(\[[0-9a-fA-F:]+\]|[^\s\[\]:/]+):([0-9]{1,5})")


class Endpoint(Frozen):
    """An address that a task has registered. Programs look it up by its name."""

    name: str
    #: The address as `HOST:PORT`. In a message, an empty address withdraws the endpoint.
    address: str
    metadata: dict[str, str] = Field(default_factory=dict)
    #: The id of the job that registered the endpoint.
    job: str
    #: The index of the task that registered the endpoint.
    task: int
    #: The number of the attempt that registered the endpoint.
    attempt: int

    def check(self) -> None:
        """Checks the name, the address and the metadata.

        Raises:
            InvalidValue: an endpoint cannot have one of them.
        """
        if _NAME.fullmatch(self.name) is None:
            remedy = (
                f"use 1 to {MAX_NAME} letters, digits, dots, dashes, slashes or underscores, the"
                " first a letter or digit"
            )
            raise InvalidValue("endpoint", self.name, "is not a valid name", remedy)
        address = _ADDRESS.fullmatch(self.address)
        if address is None or len(self.address) > MAX_ADDRESS or not 0 < int(address[2]) < 65536:
            raise InvalidValue(
                "address",
                self.address,
                "is not an address",
                "write HOST:PORT, or a port of this host",
            )
        if len(json.dumps(dict(self.metadata)).encode()) > MAX_METADATA:
            raise InvalidValue(
                "metadata",
                self.name,
                f"has more than {MAX_METADATA:,} bytes",
                "put the data into a file, and the path of the file into the metadata",
            )


def changed(
    endpoints: Sequence[Endpoint], endpoint: Endpoint, tasks: Sequence[TaskStatus]
) -> tuple[Endpoint, ...]:
    """Returns the endpoints after a task has registered or withdrawn one. Endpoints of ended
    attempts are removed.

    An endpoint replaces the same task's endpoint of the same name. The function ignores a message
    of an ended attempt, because it may arrive late; an invalid message, because not all clients
    check messages; and a new endpoint if the job already has `MOST`.
    """
    kept = _current(endpoints, tasks)
    if (
        find_task(tasks, endpoint.task) is None
        or endpoint.attempt < _latest(endpoints, tasks)[endpoint.task]
    ):
        return kept
    try:
        if endpoint.address:
            endpoint.check()
    except InvalidValue:
        return kept
    # A withdrawn endpoint stays in the list until the task's next message, because it may be the
    # only evidence of the task's current attempt.
    others = [
        each
        for each in kept
        if each.task != endpoint.task or (each.name != endpoint.name and each.address)
    ]
    return (*others, endpoint)[:MOST]


def visible(endpoints: Sequence[Endpoint], tasks: Sequence[TaskStatus]) -> tuple[Endpoint, ...]:
    """Returns the endpoints of the running attempts.

    A job of independent tasks may learn of a new attempt after the attempt has registered
    endpoints. So the later of the two attempts that the job and the endpoints name is the current
    one.
    """
    return tuple(each for each in _current(endpoints, tasks) if each.address)


def _current(endpoints: Sequence[Endpoint], tasks: Sequence[TaskStatus]) -> tuple[Endpoint, ...]:
    """Returns the endpoints of the running attempts, withdrawn ones included."""
    latest = _latest(endpoints, tasks)

    def is_current(endpoint: Endpoint) -> bool:
        task = find_task(tasks, endpoint.task)
        if task is None or task.state in ENDED or endpoint.attempt < latest[endpoint.task]:
            return False
        return endpoint.attempt > task.attempt or (
            endpoint.attempt == task.attempt and task.state in LIVE
        )

    return tuple(each for each in endpoints if is_current(each))


def _latest(endpoints: Sequence[Endpoint], tasks: Sequence[TaskStatus]) -> dict[int, int]:
    """Returns the latest attempt of each task, from the tasks' states and from the endpoints."""
    latest = {task.index: task.attempt for task in tasks}
    for each in endpoints:
        latest[each.task] = max(each.attempt, latest.get(each.task, 0))
    return latest
