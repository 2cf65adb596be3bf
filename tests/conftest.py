"""What tests of several directories share."""

from collections.abc import Iterator

import pytest

from tests.fakes.google.client import FakeGoogle


@pytest.fixture(scope="module")
def google() -> Iterator[FakeGoogle]:
    """A fake cloud whose machines do not boot, one for all tests of a module: each has a project of its own, or clears it."""
    with FakeGoogle() as google:
        yield google
