"""What Google's machines say of themselves, for people who want to know why nothing came of them. Nothing here calls anybody."""

from collections.abc import Iterator
from enum import IntEnum

from google.cloud import tpu_v2

from iris.platforms.base import LAST_WORDS

#: With what the startup script's lines begin; the console puts the time and the speaker before it.
MARK = "[iris-init]"
#: And with what when it cannot go on.
FAILED = f"{MARK} FAILED"
#: Of one line.
LONGEST_LINE = 400

_HEALTH = tpu_v2.Node.Health
_QUEUED = tpu_v2.QueuedResourceState.State


def marked(said: str) -> list[str]:
    """The lines in which a machine's startup script tells of its start."""
    return [line[line.index(MARK) :] for line in said.splitlines() if MARK in line]


def tail(said: str) -> str:
    """The last lines, no more than may be told: those of the startup script where it has said anything at all."""
    kept: list[str] = []
    left = LAST_WORDS
    for line in reversed(marked(said) or [line for line in said.splitlines() if line.strip()]):
        cut = line.strip()[:LONGEST_LINE]
        left -= len(cut.encode()) + 1
        if left < 0:
            break
        kept.append(cut)
    return "\n".join(reversed(kept))


def ailments(node: tpu_v2.Node) -> str:
    """What a TPU node lacks or suffers from, a line for each; empty: it is well."""
    return "\n".join(_ailments(node))


def queued_words(queued: tpu_v2.QueuedResource) -> str:
    """What a queued resource that has no node yet is doing; empty: it has one, for all that is known."""
    number = tpu_v2.QueuedResource.pb(queued).state.state
    return "" if number in (_QUEUED.ACTIVE, _QUEUED.STATE_UNSPECIFIED) else f"queued resource is {_name(_QUEUED, number)}"


def _ailments(node: tpu_v2.Node) -> Iterator[str]:
    plain = tpu_v2.Node.pb(node)  # numbers, of which later versions may have more than the enumerations here
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
