"""What an unknown job may have been meant to be."""

import pytest

from iris.client.jobs.find import near_jobs

KNOWN = (
    "ada/training-run",
    "ada/no-warning-sigint",
    "ada/sweep-7b",
    "bob/eval",
    "ada/b",
    "ada/sweep-7b/part",
)


@pytest.mark.parametrize(
    ("job", "near"),
    [
        ("ada/traning-run", ["ada/training-run"]),
        ("ada/sweep", ["ada/sweep-7b"]),
        ("ada/sweep-7b-old", ["ada/sweep-7b"]),
        ("ada/swep-7b", ["ada/sweep-7b"]),
        ("ada/eval", ["bob/eval"]),
        ("ada/part", ["ada/sweep-7b/part"]),
        ("ada/a", []),
        ("ada/reward-model", []),
        ("adalbert/x", []),
        ("ada/b", []),
    ],
)
def test_only_near_jobs_are_suggested(job: str, near: list[str]) -> None:
    """All ids of a user are alike by the user's name, and a suggestion that is not near sends its
    reader astray.
    """
    assert near_jobs(job, KNOWN) == near
