"""What tests of several directories share."""

import gc
import os
import sys
from collections.abc import Iterator

# Before anything imports gRPC: in a child of this process it may complain of closed files between
# fork and exec, where the output of a command is to stand (grpc/grpc#43157).
os.environ["GRPC_VERBOSITY"] = "NONE"
# Containers often set this variable. Without compiled modules, each of the hundreds of processes
# here takes seconds to start.
os.environ["PYTHONDONTWRITEBYTECODE"] = ""

import pytest
from hypothesis import settings

from tests import sshd as ssh_machines
from tests.fakes.google.client import FakeGoogle

sys.dont_write_bytecode = False
# The percentage of the examples of each property (`tests.strategies.examples`): `make test-long`
# tries all. No deadline: the machine that runs the tests may be slow. The same examples at each
# run, so a change fails by its own fault; `explore` looks for others.
settings.register_profile("quick", max_examples=25, deadline=None, derandomize=True)
settings.register_profile("thorough", max_examples=100, deadline=None, derandomize=True)
settings.register_profile("explore", max_examples=100, deadline=None)
settings.load_profile("quick")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the long tests first: otherwise the longest runs alone at the end."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


def pytest_collection_finish() -> None:
    """Takes modules and tests out of the garbage collector's sight: tests that collect would
    traverse them every time.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module")
def google() -> Iterator[FakeGoogle]:
    """A fake cloud whose machines do not boot, one for all tests of a module: each has a project of
    its own, or clears it.
    """
    with FakeGoogle() as google:
        yield google


@pytest.fixture(scope="session")
def sshd() -> None:
    """Makes sure that sshd is installed on this machine."""
    ssh_machines.install()
