"""Joins the answers of several seeds, and compares two configurations seed by seed.

A seed decides the luck of the machines, and two configurations with one seed have the same luck. So
a difference between them is computed for each seed first, and its spread is that of these
differences: it is much smaller than the spread of the two configurations by themselves.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from iris.model.frozen import Frozen
from iris.simulation.report.answers import Answers

#: The field names and keys that lead to a number in `Answers`: ("bands", "batch", "waits", "p90").
Path = tuple[str, ...]
#: The fields of `Answers` that contain no results. Comparisons of simulations leave them out.
_NO_RESULTS = {"begins", "ends", "stopped", "currency", "worst"}


class Spread(Frozen):
    """The distribution of a number over several seeds."""

    mean: float
    least: float
    most: float
    #: The standard deviation of the sample; 0 for one seed.
    deviation: float = 0.0

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Returns the spread of these values. There is at least one."""
        mean = math.fsum(values) / len(values)
        squares = math.fsum((each - mean) ** 2 for each in values)
        deviation = math.sqrt(squares / (len(values) - 1)) if len(values) > 1 else 0.0
        return cls(mean=mean, least=min(values), most=max(values), deviation=deviation)


class Change(Spread):
    """A number with the second configuration minus the same number with the first one, as a
    distribution over the seeds.
    """

    #: Whether the mean difference is larger than the standard deviation of the differences; None if
    #: there is only one seed.
    clear: bool | None

    @classmethod
    def of(cls, values: Sequence[float]) -> "Change":
        """Returns the change with this difference for each seed."""
        spread = Spread.of(values)
        clear = abs(spread.mean) > spread.deviation if len(values) > 1 else None
        return cls(**spread.model_dump(), clear=clear)


class Results(NamedTuple):
    """The results of one configuration for all seeds."""

    #: The name of the configuration, for display.
    name: str
    seeds: tuple[int, ...]
    #: The results for each seed, in the order of `seeds`.
    answers: tuple[Answers, ...]

    @property
    def spreads(self) -> dict[Path, Spread]:
        """Every number over the seeds."""
        return {path: Spread.of(values) for path, values in _by_path(self.answers).items()}


def changes(before: Results, after: Results) -> dict[Path, Change]:
    """Returns the difference of every number from one configuration to another.

    Raises:
        ValueError: the two have different seeds.
    """
    if before.seeds != after.seeds:
        raise ValueError(
            f"the two simulations were run with different seeds: {before.seeds} and {after.seeds}"
        )
    old, new = _by_path(before.answers), _by_path(after.answers)
    nothing = (0.0,) * len(before.seeds)
    return {
        path: Change.of(
            [b - a for a, b in zip(old.get(path, nothing), new.get(path, nothing), strict=True)]
        )
        for path in dict.fromkeys((*old, *new))
    }


def to_json(before: Results | None, after: Results) -> dict[str, Any]:
    """Returns everything as values for JSON. The spreads and the changes have the form of
    `Answers`, with an object in the place of each number.

    Args:
        before: the configuration to compare with; None if there is none.
    """
    both = (after,) if before is None else (before, after)
    found: dict[str, Any] = {
        "configurations": [
            {
                "name": each.name,
                "seeds": list(each.seeds),
                "answers": [answers.model_dump(mode="json") for answers in each.answers],
                "spreads": _nested(each.spreads),
            }
            for each in both
        ]
    }
    if before is not None:
        found["changes"] = _nested(changes(before, after))
    return found


def _by_path(several: Sequence[Answers]) -> dict[Path, tuple[float, ...]]:
    """Returns each number for each seed. A number that only some seeds have, such as the count of a
    fault, is 0 for the others.
    """
    found = [dict(_numbers(each.model_dump(exclude=_NO_RESULTS), ())) for each in several]
    paths = dict.fromkeys(path for numbers in found for path in numbers)
    return {path: tuple(numbers.get(path, 0.0) for numbers in found) for path in paths}


def _numbers(values: Mapping[str, Any], path: Path) -> Iterator[tuple[Path, float]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, (*path, key))
        elif isinstance(value, int | float):
            yield (*path, key), float(value)


def _nested(spreads: Mapping[Path, Spread]) -> dict[str, Any]:
    """Returns the spreads as nested mappings."""
    found: dict[str, Any] = {}
    for path, spread in spreads.items():
        here = found
        for key in path[:-1]:
            here = here.setdefault(key, {})
        here[path[-1]] = spread.model_dump(mode="json")
    return found
