"""The one definition of a quantile."""

import math
from collections.abc import Sequence


def quantile(values: Sequence[float], share: float) -> float:
    """Returns the quantile of sorted values by nearest rank: the smallest of the values that at
    least this share of them does not exceed. It is always one of the values.

    Args:
        values: the values, the smallest first. There is at least one.
        share: above 0, and at most 1: 0.5 for the median.
    """
    # 0.07 * 100 is a little more than 7 in binary numbers
    return values[max(0, math.ceil(round(share * len(values), 9)) - 1)]
