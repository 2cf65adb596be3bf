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
# Each cluster of a test has a Temporal server, which is written in Go. If it collects garbage less
# often, it needs some 7 % less CPU time, and 7 % more memory.
os.environ.setdefault("GOGC", "400")

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import settings

from tests import sshd as ssh_machines
from tests.fakes.google.client import FakeGoogle

sys.dont_write_bytecode = False
# Imports and the collection of tests create no garbage. The search for it would take a fifth of
# their time, in each of the processes.
gc.disable()
# The percentage of the examples of each property (`tests.strategies.examples`): `make test` tries a
# tenth, `make test-long` half. No deadline: the machine that runs the tests may be slow. Both try
# the same examples at each run, so a change fails by its own fault; `explore` looks for others.
settings.register_profile("quick", max_examples=10, deadline=None, derandomize=True)
settings.register_profile("thorough", max_examples=50, deadline=None, derandomize=True)
settings.register_profile("explore", max_examples=100, deadline=None)
settings.load_profile("quick")

#: What a test that fails says if Temporal's time-skipping server has broken down in it: the log of
#: the SDK, and the error of the harness (`tests.harness`).
BROKEN_SERVER = ("invalid history builder state", "ServerBrokeDown")
#: The property of a report of a test that ran on a second server.
ON_SECOND_SERVER = "on a second server"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the long tests first: otherwise the longest runs alone at the end."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """Runs a test again, on a fresh server, if the time-skipping server broke down in it.

    A timer that fires while its workflow cancels it stops that server for good
    (temporalio/sdk-java#2606 and #3088), and on a busy machine both happen at the same time more
    often. The closing lines of the run name these tests.
    """
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, nextitem=nextitem, log=False)
    if any(_server_broke_down(report) for report in reports):
        item._initrequest()  # type: ignore[attr-defined]  # fixtures of its own again
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        reports[0].user_properties.append((ON_SECOND_SERVER, True))
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _server_broke_down(report: pytest.TestReport) -> bool:
    said = f"{report.longreprtext}\n{report.capstdout}"
    return report.failed and any(each in said for each in BROKEN_SERVER)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Names the tests that ran again because their server had broken down."""
    names = {
        report.nodeid
        for reports in terminalreporter.stats.values()
        for report in reports
        if (ON_SECOND_SERVER, True) in getattr(report, "user_properties", ())
    }
    if names:
        terminalreporter.section("the time-skipping server broke down; a second one served")
        for name in sorted(names):
            terminalreporter.write_line(name)


def pytest_collection_finish() -> None:
    """Takes modules and tests out of the garbage collector's sight: tests that collect would
    traverse them every time.
    """
    gc.collect()
    gc.freeze()
    gc.enable()


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
