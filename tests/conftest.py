"""What tests of several directories share."""

import os
from collections.abc import Iterator

# Before anything imports gRPC: in a child of this process it may complain of closed files between fork and exec, where the
# output of a command is to stand (grpc/grpc#43157).
os.environ["GRPC_VERBOSITY"] = "NONE"

import pytest

from tests.fakes.google.client import FakeGoogle


@pytest.fixture(scope="module")
def google() -> Iterator[FakeGoogle]:
    """A fake cloud whose machines do not boot, one for all tests of a module: each has a project of its own, or clears it."""
    with FakeGoogle() as google:
        yield google
