"""Finds the waiting gangs whose reason has changed.

Gangs of one shape wait for the same reason, except those that quotas stop. So reasons are stored
and compared by shape, each with the lines of the shape that are stopped.
"""

import hashlib
from collections.abc import Mapping
from typing import NamedTuple

from iris.model.job.requests import Request, Shape
from iris.model.job.spec import Band
from iris.scheduling.ledger.ledger import Ledger
from iris.scheduling.placement.refusals import Refusal, RefusalCode

#: The maximum number of shapes for which one call of `reason_changes` computes why their gangs
#: wait. A query computes the exact reason at any time.
MAX_SHAPES = 50
#: The maximum number of gangs of one shape that one call of `reason_changes` lists to be told their
#: changed reason.
MAX_GANGS = 1_000
#: The codes of reasons to wait that are treated like BUSY. They change with every pass, so a change
#: between them is not reported.
_AS_BUSY = (RefusalCode.QUEUED, RefusalCode.KEPT, RefusalCode.EVICTING)


class ReasonChange(NamedTuple):
    """A changed reason why gangs of one shape wait, and the waiting gangs to be told of it."""

    #: The hash of the shape.
    shape: str
    refusal: Refusal
    requests: list[Request]


def reason_changes(
    ledger: Ledger, reported: Mapping[str, str]
) -> tuple[list[ReasonChange], dict[str, str]]:
    """Returns the changed reasons, and the updated `reported`.

    Args:
        reported: the code of the last reported reason for each shape. A shape is written as a
            hash, because users choose how long it is.
    """

    def written(shape: Shape) -> str:
        return hashlib.sha256(str(shape).encode()).hexdigest()[:16]

    shapes = {written(shape): shape for band in Band for shape in ledger.waiting.shapes(band)}
    reported = {text: code for text, code in reported.items() if text in shapes}
    # New shapes come first. Then come the shapes whose last examination is longest ago: `reported`
    # has this order.
    order = [*(text for text in shapes if text not in reported), *reported][:MAX_SHAPES]
    changes: list[ReasonChange] = []
    reasons = ledger.wait_reasons()
    for shape, refusal in reasons.by_shape(shapes[text] for text in order).items():
        code = str(RefusalCode.BUSY if refusal.code in _AS_BUSY else refusal.code)
        divided: list[tuple[Refusal, list[Request]]] | None = None
        if ledger.has_quotas:
            divided = reasons.by_line(ledger.waiting.of_shape(shape, MAX_GANGS), refusal)
            code += _stopped(divided)
        if reported.pop(written(shape), None) != code:
            if divided is None:
                divided = [(refusal, ledger.waiting.of_shape(shape, MAX_GANGS))]
            changes += [ReasonChange(written(shape), why, each) for why, each in divided]
        reported[written(shape)] = code
    return changes, reported


def _stopped(divided: list[tuple[Refusal, list[Request]]]) -> str:
    """Returns a short text that depends on which lines quotas stop; empty if they stop none."""
    lines = sorted(
        (requests[0].user, requests[0].band, requests[0].claim)
        for refusal, requests in divided
        if refusal.code is RefusalCode.QUOTA
    )
    return f" {hashlib.sha256(str(lines).encode()).hexdigest()[:8]}" if lines else ""
