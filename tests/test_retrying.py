"""Repeated calls outside workflows: which failures they retry, how long they wait, and what
passes.
"""

import asyncio
import itertools
import logging
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta

import pytest

from iris.retrying import poll, retry

SOON = timedelta(seconds=0.2)


def test_a_function_is_called_until_it_succeeds() -> None:
    """Arguments and result are those of the function."""
    answers: Iterator[object] = iter([OSError("busy"), OSError("busy"), 7])

    @retry(OSError, every=0)
    def ask(number: int) -> object:
        if isinstance(answer := next(answers), OSError):
            raise answer
        return (number, answer)

    assert ask(1) == (1, 7)


async def test_a_coroutine_function_is_awaited_until_it_succeeds() -> None:
    """The same decorator serves both, also on methods."""

    class Service:
        calls = 0

        @retry(OSError, every=0)
        async def ask(self) -> int:
            self.calls += 1
            if self.calls < 3:
                raise OSError("busy")
            return self.calls

    assert await Service().ask() == 3


def test_an_exception_that_is_not_named_passes() -> None:
    """A wrong argument stays wrong."""
    calls = []

    @retry(OSError, every=60)
    def ask() -> None:
        calls.append(1)
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        ask()
    assert len(calls) == 1


def test_the_last_failure_passes_after_the_number_of_tries() -> None:
    """The caller gets the function's own exception."""
    calls = []

    @retry(OSError, every=0, tries=3)
    def ask() -> None:
        calls.append(1)
        raise OSError(f"busy {len(calls)}")

    with pytest.raises(OSError, match="busy 3"):
        ask()


def test_the_delay_is_constant_and_the_timeout_ends_it() -> None:
    """Each call has a timeout of its own."""
    began: list[float] = []

    @retry(OSError, every=0.05, timeout=SOON)
    def ask() -> None:
        began.append(time.monotonic())
        raise OSError("busy")

    for _ in range(2):
        began.clear()
        with pytest.raises(OSError, match="busy"):
            ask()
        assert 2 <= len(began) <= 5
        assert all(later - earlier >= 0.049 for earlier, later in itertools.pairwise(began))


def test_a_function_decides_and_names_the_delay() -> None:
    """A service that says when to come back is obeyed."""
    failures = iter([OSError(0), OSError(0), OSError(60)])

    @retry(lambda error: error.args[0] == 0 and 0.001, every=60)
    def ask() -> None:
        raise next(failures)

    with pytest.raises(OSError, match="60"):
        ask()


async def test_a_cancellation_passes() -> None:
    """Also between two tries."""

    @retry(Exception, every=60)
    async def ask() -> None:
        raise OSError("busy")

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(ask(), 0.1)


def test_a_poll_ends_with_the_state_or_the_timeout() -> None:
    """The caller writes the error."""
    answers = iter([False, False, True])

    assert poll(lambda: next(answers), every=0, timeout=SOON)
    assert not poll(lambda: False, every=0.01, timeout=SOON)


def test_retries_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """They would appear in a user's terminal."""
    caplog.set_level(logging.DEBUG)
    answers = iter([False, True])

    assert poll(lambda: next(answers), every=0, timeout=SOON)
    assert caplog.records == []


def test_the_library_is_loaded_by_the_first_call() -> None:
    """Every command imports this module, and few retry."""
    code = "import iris.client.client, iris.retrying, sys; sys.exit('stamina' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
