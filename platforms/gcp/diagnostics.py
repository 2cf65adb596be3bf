"""Extracts diagnostics of Google's machines, for people who want to know why a machine did not
become a host. Makes no calls.
"""

from collections.abc import Iterator
from enum import IntEnum

from google.cloud import tpu_v2

from iris.platforms.base import MAX_OUTPUT_BYTES

#: The text with which each line begins that the startup script prints. The serial console puts the
#: time and the program's name before it.
MARK = "[iris-init]"
#: The beginning of the line that a startup script writes when it fails.
FAILED = f"{MARK} FAILED"
#: The maximum length of one line in the diagnostics, in characters.
LONGEST_LINE = 400

_HEALTH = tpu_v2.Node.Health
_QUEUED = tpu_v2.QueuedResourceState.State


def startup_lines(console: str) -> list[str]:
    """Returns the lines of the machine's startup script, without the console's prefix."""
    return [line[line.index(MARK) :] for line in console.splitlines() if MARK in line]


def tail(output: str) -> str:
    """Returns the last lines, at most `MAX_OUTPUT_BYTES` bytes. If the startup script printed any
    lines, only those are used.
    """
    kept: list[str] = []
    left = MAX_OUTPUT_BYTES
    for line in reversed(
        startup_lines(output) or [line for line in output.splitlines() if line.strip()]
    ):
        cut = line.strip()[:LONGEST_LINE]
        left -= len(cut.encode()) + 1
        if left < 0:
            break
        kept.append(cut)
    return "\n".join(reversed(kept))


def node_problems(node: tpu_v2.Node) -> str:
    """Returns the problems of a TPU node, one per line; empty if there are none."""
    return "\n".join(_problems(node))


def queued_state(queued: tpu_v2.QueuedResource) -> str:
    """Returns the state of a queued resource that has no node yet; empty if it is ACTIVE or its
    state is unspecified.
    """
    number = tpu_v2.QueuedResource.pb(queued).state.state
    return (
        ""
        if number in (_QUEUED.ACTIVE, _QUEUED.STATE_UNSPECIFIED)
        else f"queued resource is {_name(_QUEUED, number)}"
    )


def _problems(node: tpu_v2.Node) -> Iterator[str]:
    # Plain numbers, because later versions may have values that the enumerations lack.
    plain = tpu_v2.Node.pb(node)
    if plain.state != tpu_v2.Node.State.READY:
        yield f"TPU node is {_name(tpu_v2.Node.State, plain.state)}"
    if plain.health not in (_HEALTH.HEALTHY, _HEALTH.HEALTH_UNSPECIFIED):
        yield f"TPU node's health is {_name(_HEALTH, plain.health)}"
    if plain.health_description:
        yield plain.health_description
    for worker, endpoint in enumerate(plain.network_endpoints):
        if not endpoint.ip_address:
            yield f"worker {worker} has no address"
    for symptom in plain.symptoms:
        named = _name(tpu_v2.Symptom.SymptomType, symptom.symptom_type)
        yield f"worker {symptom.worker_id}: {named} {symptom.details}".rstrip()


def _name(of: type[IntEnum], number: int) -> str:
    return of(number).name if number in set(of) else str(number)
