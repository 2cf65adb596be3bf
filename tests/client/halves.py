"""A module of a user's, for tests of functions that travel to a job: it is neither installed nor in
a workspace.
"""


def half_of(number: int) -> int:
    return _divided(number, 2)


def _divided(number: int, by: int) -> int:
    return number // by
