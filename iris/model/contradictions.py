"""Finds required constraints that no host can meet together, whatever attributes it has."""

from collections.abc import Iterable, Sequence

from iris.model.constraints import Attribute, Constraint, Operator

_LISTS = frozenset({Operator.EQ, Operator.IN})
_LOWER = frozenset({Operator.GT, Operator.GE})
_UPPER = frozenset({Operator.LT, Operator.LE})


def contradiction(constraints: Iterable[Constraint]) -> tuple[Constraint, ...]:
    """Returns constraints on one attribute that exclude each other; empty if a host could meet all of them.

    Preferred constraints exclude no host and do not count.
    """
    by_key: dict[str, list[Constraint]] = {}
    for constraint in constraints:
        if not constraint.preferred:
            by_key.setdefault(constraint.key, []).append(constraint)
    for group in by_key.values():
        if not _possible(group):
            # Usually two of them suffice, and they say best what to change.
            pairs = ((one, other) for place, one in enumerate(group) for other in group[:place])
            return next((tuple(reversed(pair)) for pair in pairs if not _possible(pair)), tuple(group))
    return ()


def _possible(constraints: Sequence[Constraint]) -> bool:
    """Returns whether a host could meet all of these constraints on one attribute."""
    if any(each.op is Operator.NOT_EXISTS for each in constraints):
        return all(each.op is Operator.NOT_EXISTS for each in constraints)
    candidates = _candidates(constraints)
    if candidates is None:
        return True
    return any(all(each.holds({each.key: value}) for each in constraints) for value in candidates)


def _candidates(constraints: Sequence[Constraint]) -> Sequence[Attribute] | None:
    """Returns values of which one meets all constraints if any value does; None: some value certainly does."""
    listed = next((each for each in constraints if each.op in _LISTS), None)
    if listed is not None:
        return listed.values
    lower, upper = (_limits(constraints, operators) for operators in (_LOWER, _UPPER))
    if not lower or not upper:
        return None  # numbers have no end, so there is one that no `!=` names
    if max(lower) < min(upper):
        return None
    return (max(lower),)


def _limits(constraints: Sequence[Constraint], operators: frozenset[Operator]) -> list[int | float]:
    return [value for each in constraints if each.op in operators for value in each.values if isinstance(value, int | float)]
