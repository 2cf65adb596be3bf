"""What `--watch` counts as a change."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris.cli.main import run
from iris.cli.watch import without_ages
from iris.model.units import format_duration

AGES = st.timedeltas(timedelta(), timedelta(days=400))


@given(AGES, AGES)
def test_time_alone_is_no_change(before: timedelta, after: timedelta) -> None:
    """Else every job that waits would be printed again every two seconds."""
    rows = [
        f"train  RUNNING  {format_duration(age):<8}  python train.py --lr 0.1"
        for age in (before, after)
    ]
    assert without_ages(rows[0]) == without_ages(rows[1])


@pytest.mark.parametrize(
    "changed",
    ["train FAILED 4s 3", "train RUNNING 4s 4", "train2 RUNNING 4s 3", "train RUNNING 4s"],
)
def test_all_else_is_a_change(changed: str) -> None:
    """States, counts and names."""
    assert without_ages(changed) != without_ages("train RUNNING 4s 3")


def test_a_command_is_not_watched_twice(capsys: pytest.CaptureFixture[str]) -> None:
    """The inner one would never return to the outer one."""
    assert run(["watch", "jobs", "--watch"]) == 2
    assert "leave out --watch" in capsys.readouterr().err
