"""Size limits of messages to and from the scheduler, and the functions that cut or split what
exceeds them.

Temporal accepts payloads of 2 MiB and requests of 4 MiB. A workflow whose answer is larger fails
that step forever. So no size of what the scheduler sends may depend on how much users request.
"""

from collections.abc import Iterable
from typing import TypeVar

from pydantic import BaseModel

from iris.model.errors import InvalidValue
from iris.model.host.constraints import contradiction
from iris.model.job.dependencies import check_dependencies
from iris.model.job.spec import JobSpec

#: The largest size as JSON of one batch, its answers, one activity's argument or one query's
#: answer. It is a quarter of a payload, because one workflow task answers several updates and
#: schedules several activities in one request of 4 MiB. A usual batch of 500 messages has 200 KiB.
BATCH_BYTES = 512 * 1024
#: The largest size of one message, and of a batch sent without an outbox. The scheduler's
#: acceptance of an update repeats it to the Temporal server.
MESSAGE_BYTES = 3 * BATCH_BYTES
#: The largest constraint in bytes of text. 50 zones or machines with names of 18 letters fit.
CONSTRAINT_BYTES = 1024
#: The most constraints of a job. Every pass checks each of them against every host.
CONSTRAINTS = 32
#: The largest size as JSON of all that a gang demands of its hosts: devices, constraints, grouping.
#: The scheduler stores it once per shape and sends up to 200 shapes to the autoscaler at once,
#: which is less than a payload.
DEMAND_BYTES = 4 * 1024
#: The largest size of a whole request. Names and times add less than the difference.
REQUEST_BYTES = DEMAND_BYTES + 2 * 1024
#: The most characters of a reason, and of a part of it that a person chose: a constraint, an
#: attribute's value, an operator's text.
REASON, PART = 1_000, 160

T = TypeVar("T")


def size_of(value: BaseModel) -> int:
    """Returns the value's size as JSON, in bytes."""
    return len(value.model_dump_json().encode())


def fitting(values: Iterable[tuple[T, int]], most: int, room: int = BATCH_BYTES) -> list[T]:
    """Returns the first values that fit: at most `most`, at most `room` bytes together, but always
    at least one.

    Args:
        values: each with its size in bytes.
    """
    taken: list[T] = []
    for value, size in values:
        room -= size
        if taken and (room < 0 or len(taken) >= most):
            break
        taken.append(value)
    return taken


def cut(text: str, most: int = PART) -> str:
    """Returns the text, with its middle left out if it is longer than `most`."""
    if len(text) <= most:
        return text
    end = most // 4
    return f"{text[: most - end - 3]} … {text[-end:]}"


def check_demands(spec: JobSpec) -> None:
    """Checks that the job's demands are small enough for the scheduler, and that hosts and other
    jobs could meet them.

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
                f"use at most {CONSTRAINT_BYTES:,}; give the hosts one attribute that distinguishes"
                " them",
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
            f"make the request {size:,} bytes",
            f"use at most {DEMAND_BYTES:,} bytes for devices, constraints and grouping together",
        )
