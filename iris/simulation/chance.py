"""Chance without random numbers: each draw follows from the seed and from what it is for.

Two simulations with the same seed draw the same number for the same thing, also if their
configurations differ. So a difference between their results comes from the configurations.
"""

import hashlib
import math
from collections.abc import Sequence

#: A hundred years, in seconds. An event that would occur later does not occur in a simulation.
NEVER = 100 * 365.25 * 86_400


def uniform(seed: int, *what: object) -> float:
    """Returns a number from 0 up to, but not including, 1.

    Args:
        what: identifies the draw.
    """
    text = "/".join(map(str, (seed, *what)))
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return (int.from_bytes(digest) >> 11) / (1 << 53)


def sample(quantiles: Sequence[float], at: float) -> float:
    """Returns a value of a distribution, which is given by evenly spaced quantiles: the smallest
    value first, the largest last, and linear between them.

    Args:
        at: the number from 0 to 1 that `uniform` returned.
    """
    place = at * (len(quantiles) - 1)
    before = min(int(place), len(quantiles) - 1)
    after = min(before + 1, len(quantiles) - 1)
    return quantiles[before] + (quantiles[after] - quantiles[before]) * (place - before)


def waiting_time(per_hour: float, at: float) -> float:
    """Returns the seconds until an event that happens at this rate, at any time equally likely;
    infinite if it does not happen within `NEVER`.

    Args:
        at: as for `sample`.
    """
    seconds = -math.log(1.0 - at) * 3600 / per_hour if per_hour > 0 else math.inf
    return seconds if seconds < NEVER else math.inf
