"""Jobs of the largest sizes that submission accepts, and the size of what the scheduler sends
because of them.
"""

import asyncio
import string
from random import Random
from typing import Any

from iris.client.connect.connection import CompressionCodec, SharedConverter
from iris.model.errors import InvalidValue
from iris.model.host.constraints import TPU_NAME, ZONE, Constraint, Operator
from iris.model.host.resources import MAX_AMOUNT, Device, DeviceKind, Resources
from iris.model.job.demand_limits import DEMAND_BYTES, check_demands
from iris.model.job.requests import Request, request_for
from iris.model.job.spec import MAX_REPLICAS, Band, Coscheduling, JobSpec
from iris.model.names import MAX_NAME
from iris.model.units import GIB, MIB
from tests.builders import a_spec, at, some

#: The largest payload that Temporal accepts.
PAYLOAD = 2 * MIB


def travels(value: Any) -> int:
    """The size in bytes of the payload that Iris makes of the value."""
    payloads = SharedConverter().to_payloads([value])
    (encoded,) = asyncio.run(CompressionCodec().encode(payloads))
    return encoded.ByteSize()


def a_name(random: Random, length: int = MAX_NAME) -> str:
    return "".join(random.choices(string.ascii_letters + string.digits, k=length))


def constraints(random: Random) -> tuple[Constraint, ...]:
    """Few long ones, many short ones, or one that is as long as it may be."""
    preferred = random.random() < 0.3
    match random.randrange(3):
        case 0:
            values = [tuple(a_name(random) for _ in range(15)) for _ in range(3)]
            return tuple(
                Constraint(key=ZONE, op=Operator.IN, values=each, preferred=preferred)
                for each in values
            )
        case 1:
            return tuple(
                Constraint(key=f"k{n}-{a_name(random, 8)}", op=Operator.NOT_EXISTS)
                for n in range(32)
            )
        case _:
            return (
                Constraint(
                    key=a_name(random, 20), values=(a_name(random, 990),), preferred=preferred
                ),
            )


def resources(random: Random, number: int) -> Resources:
    """Small ones; larger than any host; amounts of which none is smaller than another; devices of a
    thousand variants.
    """
    match random.randrange(4):
        case 0:
            return some(random.choice([0.5, 1, 2]))
        case 1:
            return Resources(
                cpu_millis=MAX_AMOUNT - number, memory_bytes=MAX_AMOUNT, disk_bytes=MAX_AMOUNT
            )
        case 2:
            return Resources(cpu_millis=1000 + number, memory_bytes=4 * GIB - number)
        case _:
            variant = ",".join(a_name(random, 3) for _ in range(500))
            return some(
                1,
                device=Device(
                    kind=DeviceKind.TPU, variant=variant, count=random.choice([1, MAX_AMOUNT])
                ),
            )


def a_hostile_spec(random: Random, number: int, user: str) -> JobSpec:
    """A valid job with some of its fields as large as they may be."""
    changes: dict[str, Any] = {
        "user": user,
        "name": f"{a_name(random, MAX_NAME - 7)}{number:07}",
        "band": random.choice(list(Band)),
    }
    changes["resources"] = resources(random, number)
    if random.random() < 0.4:
        changes["constraints"] = constraints(random)
    if random.random() < 0.3:
        tasks = random.choice([2, MAX_REPLICAS])
        device = changes["resources"].device
        groups = 1 if device else random.choice([1, 2, tasks])
        by = TPU_NAME if device or random.random() < 0.5 else f"rack{a_name(random, 500)}"
        changes |= {"replicas": tasks, "coscheduling": Coscheduling(group_by=by, groups=groups)}
    spec = a_spec(**changes)
    try:
        check_demands(spec)
    except InvalidValue:
        return a_spec(**changes | {"constraints": (), "resources": some(1)})
    return spec


def a_request_for(spec: JobSpec, submitted: float, cluster: str = "c") -> Request:
    return request_for(
        spec,
        index=0,
        attempt=1,
        run_id=f"{round(submitted * 1000) + 0x19AAAAAAAAA:012x}"[:8]
        + f"-{round(submitted * 1000) % 65536:04x}-0000",
        owner=f"{cluster}/job/{spec.id}",
        submitted_at=at(submitted),
    )


__all__ = ["DEMAND_BYTES", "PAYLOAD", "a_hostile_spec", "a_name", "a_request_for", "travels"]
