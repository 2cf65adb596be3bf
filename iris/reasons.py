"""Who has to be told that the reason for their wait has changed.

Everybody who wants the same waits for the same reason. So what was told is remembered by shape, and looked at shape by shape.
"""

from collections.abc import Mapping
from typing import NamedTuple

from iris.gangs import Request
from iris.ledger import Ledger
from iris.refusals import Refusal, RefusalCode

#: Shapes whose reason is worked out in one look, for those who wait to show; whoever asks is told the exact one at any time.
MAX_SHAPES = 50
#: Those of one shape who are told that the reason has changed.
MAX_TOLD = 1_000
#: Nobody is told of a change between these: they come and go with every pass.
_AS_BUSY = (RefusalCode.QUEUED, RefusalCode.KEPT, RefusalCode.EVICTING)


class News(NamedTuple):
    """What one shape's waiting gangs are to be told."""

    #: The shape, written as text.
    shape: str
    refusal: Refusal
    requests: list[Request]


def news(ledger: Ledger, told: Mapping[str, str]) -> tuple[list[News], dict[str, str]]:
    """Who is to be told what, and what then has been told: by shape, written as text, the code of the last reason."""
    shapes = {str(shape): shape for shape in ledger.demand()}
    told = {text: code for text, code in told.items() if text in shapes}
    # New ones first, then those not looked at for longest: the book of what was told is kept in that order.
    order = [*(text for text in shapes if text not in told), *told][:MAX_SHAPES]
    changed: list[News] = []
    for shape, refusal in ledger.inquiry.reasons(shapes[text] for text in order).items():
        code = RefusalCode.BUSY if refusal.code in _AS_BUSY else refusal.code
        if told.pop(str(shape), None) != code:
            changed.append(News(str(shape), refusal, ledger.waiting.of_shape(shape, MAX_TOLD)))
        told[str(shape)] = code
    return changed, told
