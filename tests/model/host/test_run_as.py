"""As which users a host's jobs run."""

import pytest

from iris.model.errors import InvalidValue
from iris.model.host.run_as import DEFAULT_UIDS, choose_uids, parse_run_as


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ada",
        "0-10",
        "999-2000",
        "1000-61000",
        "5000-4000",
        "65000-65534",
        "1000-4294967295",
        "1000",
        "-1-5",
        "1e3-2e3",
        "61000-2147483647",
    ],
)
def test_what_is_no_range_of_uids_for_jobs_is_refused_with_a_remedy(text: str) -> None:
    """Small uids belong to the system and to people, whose processes the end of a job would kill; 0
    is root.
    """
    with pytest.raises(
        InvalidValue, match="use a range such as 60706-61183, or root for the user of the agent"
    ):
        parse_run_as(text)


def test_ranges_and_root_are_read() -> None:
    """Both ends are uids of jobs."""
    assert parse_run_as("64000-64999") == range(64_000, 65_000)
    assert parse_run_as("2147483640-2147483646") == range(2**31 - 8, 2**31 - 1)
    assert parse_run_as("root") is None


@pytest.mark.parametrize(
    ("run_as", "root", "simulated", "uids"),
    [
        ("", True, False, DEFAULT_UIDS),
        ("", True, True, None),
        ("", False, False, None),
        ("root", True, False, None),
        ("root", False, False, None),
        ("62000-62009", True, False, range(62_000, 62_010)),
        ("62000-62009", True, True, range(62_000, 62_010)),
        ("62000-62009", False, True, None),
    ],
)
def test_jobs_are_not_root_unless_a_person_says_so_or_the_cluster_is_local(
    run_as: str, root: bool, simulated: bool, uids: range | None
) -> None:
    """A laptop may simulate the configuration of a cluster whose agents are root."""
    assert choose_uids(run_as, root=root, simulated=simulated) == uids


def test_an_agent_that_is_not_root_refuses_to_promise_other_users() -> None:
    """It cannot start processes of other users, and must not drop the setting in silence."""
    with pytest.raises(InvalidValue, match="needs an agent that runs as root"):
        choose_uids("62000-62009", root=False, simulated=False)
