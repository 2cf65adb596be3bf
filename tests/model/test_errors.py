"""What errors promise to scripts and to people."""

from concurrent.futures import BrokenExecutor

import pytest

import iris
from iris.model import errors
from iris.model.errors import InvalidValue, IrisError
from iris.model.job import errors as job_errors

#: The exit codes of the design, section 8. Click's own errors exit with 2, an interrupt with 130.
PROMISED = {
    "IrisError": 1,
    "IllegalMove": 1,
    "NotFound": 3,
    "Unreachable": 4,
    "Rejected": 5,
    "NameTaken": 5,
    "NotAllowed": 5,
    "InvalidValue": 2,
    "InvalidJob": 2,
    "WaitTimeout": 124,
    "JobFailed": 125,
    "JobCancelled": 126,
}


#: The errors by name, those of a job that did not succeed included.
ERRORS = {
    name: kind
    for name, kind in (vars(errors) | vars(job_errors)).items()
    if isinstance(kind, type) and issubclass(kind, IrisError)
}


@pytest.mark.parametrize(("name", "code"), PROMISED.items())
def test_every_error_has_the_exit_code_of_the_documentation(name: str, code: int) -> None:
    """Scripts tell a failed job from an unreachable cluster by nothing else."""
    assert code == ERRORS[name].exit_code


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (iris.WaitTimeout("job ada/train has not ended"), TimeoutError),
        (iris.InvalidJob("cpu: 'x' is no number"), ValueError),
        (iris.InvalidValue("cpu", "x", "is no number", "write one"), ValueError),
        (iris.PoolClosed("this pool was shut down"), RuntimeError),
        (iris.PoolBroken("the workers are lost"), BrokenExecutor),
    ],
)
def test_an_error_is_also_the_one_that_pythons_own_libraries_raise(
    error: iris.IrisError, expected: type[Exception]
) -> None:
    """Code that handles time-outs, wrong values and executors needs no case of its own for Iris."""
    assert isinstance(error, iris.IrisError)
    assert isinstance(error, expected)


def test_no_error_is_missing_from_the_documentation() -> None:
    """The tree in the module's docstring is what users read; the table above is what tests read:
    both name every error.
    """
    assert ERRORS.keys() == PROMISED.keys()
    assert all(name in (errors.__doc__ or "") for name in ERRORS)


def test_a_value_that_cannot_be_is_refused_in_one_sentence_with_field_value_and_remedy() -> None:
    """The person who must act reads this and nothing else; pydantic takes it for a ValueError and
    adds where it stood.
    """
    error = InvalidValue("memory", "8x", "is not a size", 'write "8g"')

    assert str(error) == "memory: '8x' is not a size; write \"8g\""
    assert isinstance(error, ValueError)
    assert isinstance(error, errors.Rejected)


def test_a_huge_value_is_not_repeated_in_full() -> None:
    """A megabyte pasted into a flag must not scroll the remedy off the screen or fill a history."""
    text = str(InvalidValue("env", "x" * 1_000_000, "is too long", "use a file"))

    assert len(text) < 200
    assert text.endswith("is too long; use a file")


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OSError("no such bucket\n\nDebug source:\n…"), "no such bucket"),
        (OSError("\n"), "OSError"),
        (ValueError(), "ValueError"),
    ],
)
def test_of_what_a_library_says_one_line_is_told(error: Exception, line: str) -> None:
    """Some libraries append pages about their internals, and some errors have no text."""
    assert errors.first_line(error) == line
