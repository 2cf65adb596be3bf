"""Limits the size of messages to and from the scheduler, and cuts or splits messages that exceed
them.

Temporal accepts payloads of 2 MiB and requests of 4 MiB. If a workflow's answer is larger, that
step fails forever. So the size of the scheduler's messages must not depend on how much users
request.
"""

from collections.abc import Iterable
from typing import TypeVar

from pydantic import BaseModel

from iris.model.errors import InvalidValue
from iris.model.host.constraints import contradiction
from iris.model.job.dependencies import check_dependencies
from iris.model.job.spec import JobSpec

#: The limit on the JSON size of one batch of messages to the scheduler, of the answers to a batch,
#: of an activity's argument or of a query's answer. It is a quarter of the largest payload, because
#: one workflow task answers several updates and schedules several activities in one request of 4
#: MiB. A usual batch of 500 messages has 200 KiB.
BATCH_BYTES = 512 * 1024
#: The limit on the JSON size of one message to the scheduler, and of a batch from a process that
#: does not limit its batches to `BATCH_BYTES`. It is below the 2 MiB of a payload, because the
#: scheduler, when it accepts an update, sends the content of the update to the Temporal server once
#: more.
MESSAGE_BYTES = 3 * BATCH_BYTES
#: The limit on the bytes of a constraint's text. It is enough for 50 zones or machines with names
#: of 18 letters.
CONSTRAINT_BYTES = 1024
#: The limit on constraints of a job. Each scheduling pass checks each constraint against every
#: host.
CONSTRAINTS = 32
#: The limit on the JSON size of a gang's demands on its hosts: devices, constraints, grouping. The
#: scheduler stores the demands once for all gangs with the same demands (a shape). It sends up to
#: 200 shapes to the autoscaler at once, which fit in one payload.
DEMAND_BYTES = 4 * 1024
#: The limit on the JSON size of a whole request: the demands, and less than 2 KiB of names and
#: times.
REQUEST_BYTES = DEMAND_BYTES + 2 * 1024
#: The limits on characters of a reason, and of a part of a reason that a person wrote: a
#: constraint, an attribute's value, an operator's text.
REASON, PART = 1_000, 160

T = TypeVar("T")


def size_of(value: BaseModel) -> int:
    """Returns the value's size as JSON, in bytes."""
    return len(value.model_dump_json().encode())


def fitting(values: Iterable[tuple[T, int]], most: int, room: int = BATCH_BYTES) -> list[T]:
    """Returns as many of the first values as fit: at most `most` values, and at most `room` bytes
    together, but at least one value.

    Args:
        values: pairs of a value and its size in bytes.
    """
    taken: list[T] = []
    for value, size in values:
        room -= size
        if taken and (room < 0 or len(taken) >= most):
            break
        taken.append(value)
    return taken


def cut(text: str, most: int = PART) -> str:
    """Returns the text. If it is longer than `most`, its middle is left out."""
    if len(text) <= most:
        return text
    end = most // 4
    return f"{text[: most - end - 3]} … {text[-end:]}"


def check_demands(spec: JobSpec) -> None:
    """Checks that the job's demands are small enough for the scheduler, and that they do not
    exclude each other.

    Raises:
        InvalidValue: the demands are too large, or exclude each other.
    """
    if len(spec.constraints) > CONSTRAINTS:
        raise InvalidValue(
            "constraint",
            f"{len(spec.constraints)} constraints",
            "are too many",
            f"give at most {CONSTRAINTS}; use KEY in (A, B)",
        )
    for constraint in spec.constraints:
        text = str(constraint)
        if (size := len(text.encode())) > CONSTRAINT_BYTES:
            raise InvalidValue(
                "constraint",
                text,
                f"has {size:,} bytes",
                f"use at most {CONSTRAINT_BYTES:,} bytes; instead of a long list, give the wanted"
                " hosts an attribute that no other host has, and ask for it",
            )
    if excluding := contradiction(spec.constraints):
        *texts, last = (cut(str(each)) for each in excluding)
        raise InvalidValue(
            "constraint", f"{', '.join(texts)} and {last}", "exclude each other", "drop one of them"
        )
    check_dependencies(spec.after)
    sizes = {
        field: len(spec.model_dump_json(include={field}).encode())
        for field in ("constraints", "resources", "coscheduling")
    }
    if (size := sum(sizes.values())) > DEMAND_BYTES:
        field = max(sizes, key=lambda each: sizes[each])
        raise InvalidValue(
            {"constraints": "constraint", "resources": "device"}.get(field, field),
            f"{sizes[field]:,} bytes",
            f"make the request too large: {size:,} bytes",
            f"use at most {DEMAND_BYTES:,} bytes for devices, constraints and grouping together",
        )
