"""The log lines of Iris's processes: which object each is about."""

import logging
import sys
from types import SimpleNamespace

import pytest

from iris.activities.host.attempt.host_context import HostContext
from iris.worker_agents.logging_setup import FieldsFormatter
from tests.activities.host.attempt.test_attempt import a_run
from tests.builders import a_host

logger = logging.getLogger("iris.test")


def the_line(caplog: pytest.LogCaptureFixture) -> str:
    """The one record as its process shows it, without the time."""
    (record,) = caplog.records
    return FieldsFormatter().format(record).split(" ", 2)[2]


def test_a_record_of_an_attempt_shows_its_job_attempt_host_and_slice(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A search for one of them finds the line in the log of any process."""
    on_host = SimpleNamespace(host=a_host("h1", slice_id="s1"))
    HostContext.logger(on_host, logger, a_run("true", key="ada/train:0@1/run")).warning("it failed")  # type: ignore[arg-type]

    assert (
        the_line(caplog)
        == "WARNING iris.test: it failed job=ada/train attempt=ada/train:0@1/run host=h1 slice=s1"
    )


def test_a_record_shows_only_the_fields_that_it_has(caplog: pytest.LogCaptureFixture) -> None:
    """Most lines of a control plane are about no attempt."""
    logger.warning("the provider refused it", extra={"slice": "s1"})

    assert the_line(caplog) == "WARNING iris.test: the provider refused it slice=s1"


def test_fields_stand_before_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    """On the line of the message, where a search shows both."""
    try:
        raise ValueError("broken")
    except ValueError:
        logger.warning("it failed", extra={"host": "h1"}, exc_info=sys.exc_info())

    first, *traceback = the_line(caplog).splitlines()
    assert first == "WARNING iris.test: it failed host=h1"
    assert traceback[-1] == "ValueError: broken"
