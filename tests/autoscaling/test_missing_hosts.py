"""When a host counts as missing in the scheduler's ledger, and what operators read."""

from iris.autoscaling.missing_hosts import MissingHost, still_missing
from tests.builders import at

H1 = MissingHost(host_id="h1", incarnation="first", slice_id="s1")
H2 = MissingHost(host_id="h2", incarnation="first", slice_id="s2")


def test_a_host_is_an_alarm_when_two_looks_in_a_row_agree() -> None:
    """One look may fall between the slice's message and the scheduler's answer. A new incarnation
    is another host.
    """
    once = still_missing((), (H1, H2), at(0))
    assert not any(each.is_alarm for each in once)

    twice = still_missing(once, (H1, H2.model_copy(update={"incarnation": "second"})), at(60))
    assert [(each.host_id, each.is_alarm, each.since) for each in twice] == [
        ("h1", True, at(0)),
        ("h2", False, at(60)),
    ]
    assert still_missing(twice, (), at(120)) == ()


def test_operators_read_which_host_is_missing_since_when_and_what_to_do() -> None:
    """Iris cannot delete machines that joined by themselves."""
    missing = H1.model_copy(update={"since": at(0)})
    since = "since 2026-01-01 12:00:00 UTC"
    said = (
        f"the scheduler does not have host h1 of slice s1, which is READY, {since}; the slice"
        " offers it again"
    )

    assert missing.problem({"s1"}) == f"{said}; if it lasts, delete the slice: iris slice delete s1"
    assert missing.problem(()) == f"{said}; if it lasts, restart its agent"
