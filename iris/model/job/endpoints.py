"""Endpoints: addresses that the tasks of a job make known by name. They are there as long as the
attempt that registered them.
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

#: The most endpoints that a job keeps. They are in the memory of its workflow.
MOST = 1_000
#: The longest name and address in characters, and the most bytes of metadata as JSON.
MAX_NAME, MAX_ADDRESS, MAX_METADATA = 120, 255, 1024
_NAME = re.compile(rf"[a-zA-Z0-9][a-zA-Z0-9._/-]{{0,{MAX_NAME - 1}}}")
_ADDRESS = re.compile(r"(\[[0-9a-fA-F:]+\]|[^\s\[\]:/]+):([0-9]{1,5})")


class Endpoint(Frozen):
    """An address that a task has made known, for programs that look for its name."""

    name: str
    #: `HOST:PORT`. Empty in a message: the task withdraws the endpoint.
    address: str
    metadata: dict[str, str] = Field(default_factory=dict)
    #: The task that registered it.
    job: str
    task: int
    attempt: int

    def check(self) -> None:
        """Raises:
        InvalidValue: the name, the address or the metadata is not one that an endpoint may have.
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
                "put the data into a file, and its path here",
            )


def changed(
    endpoints: Sequence[Endpoint], endpoint: Endpoint, tasks: Sequence[TaskStatus]
) -> tuple[Endpoint, ...]:
    """Returns the endpoints with this one, or without it if it is withdrawn, and without those that
    are gone.

    It replaces that of the same task and name. A message of an attempt that is over is ignored: it
    may arrive after those of the next one. So is one that is not valid: not every client checks
    them. A job that has `MOST` endpoints gets no more.
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
    # A withdrawn endpoint stays until the task's next message: it may be all that the job knows of
    # the attempt.
    others = [
        each
        for each in kept
        if each.task != endpoint.task or (each.name != endpoint.name and each.address)
    ]
    return (*others, endpoint)[:MOST]


def visible(endpoints: Sequence[Endpoint], tasks: Sequence[TaskStatus]) -> tuple[Endpoint, ...]:
    """Returns the endpoints of the attempts that run, by the job's knowledge of its tasks.

    A job of independent tasks learns of a new attempt a little later than the attempt can register:
    of two attempts of a task, the later one counts.
    """
    return tuple(each for each in _current(endpoints, tasks) if each.address)


def _current(endpoints: Sequence[Endpoint], tasks: Sequence[TaskStatus]) -> tuple[Endpoint, ...]:
    """Returns the endpoints of the attempts that run, and those that such attempts have
    withdrawn.
    """
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
    """Returns the latest attempt of each task that the job or an endpoint knows."""
    latest = {task.index: task.attempt for task in tasks}
    for each in endpoints:
        latest[each.task] = max(each.attempt, latest.get(each.task, 0))
    return latest
