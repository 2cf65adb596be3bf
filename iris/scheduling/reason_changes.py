"""Finds the waiting gangs whose reason has changed.

Gangs of one shape wait for the same reason. So the reported reasons are stored and compared by shape.
"""

from collections.abc import Mapping
from typing import NamedTuple

from iris.model.requests import Request
from iris.scheduling.ledger import Ledger
from iris.scheduling.refusals import Refusal, RefusalCode

#: The most shapes whose reason one call computes. A query gets the exact reason at any time.
MAX_SHAPES = 50
#: The most gangs of one shape that get the changed reason.
MAX_TOLD = 1_000
#: These count as BUSY: they change with every pass, and a change between them is not reported.
_AS_BUSY = (RefusalCode.QUEUED, RefusalCode.KEPT, RefusalCode.EVICTING)


class News(NamedTuple):
    """The changed reason of one shape, and the waiting gangs that get it."""

    #: The shape, written as text.
    shape: str
    refusal: Refusal
    requests: list[Request]


def news(ledger: Ledger, told: Mapping[str, str]) -> tuple[list[News], dict[str, str]]:
    """Returns the changed reasons, and the updated `told`.

    Args:
        told: the code of the last reported reason for each shape, written as text.
    """
    shapes = {str(shape): shape for shape in ledger.demand()}
    told = {text: code for text, code in told.items() if text in shapes}
    # New shapes first, then those that were not examined for longest: `told` is kept in that order.
    order = [*(text for text in shapes if text not in told), *told][:MAX_SHAPES]
    changed: list[News] = []
    for shape, refusal in ledger.inquiry.reasons(shapes[text] for text in order).items():
        code = RefusalCode.BUSY if refusal.code in _AS_BUSY else refusal.code
        if told.pop(str(shape), None) != code:
            changed.append(News(str(shape), refusal, ledger.waiting.of_shape(shape, MAX_TOLD)))
        told[str(shape)] = code
    return changed, told
