"""Which ends of other jobs let a job start, which never will, and how that is said."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris.model.errors import InvalidValue
from iris.model.job.demand_limits import check_demands
from iris.model.job.dependencies import (
    MAX_DEPENDENCIES,
    Condition,
    Dependency,
    is_met,
    listed,
    parse_dependencies,
    refusal,
    waiting_for,
)
from iris.model.job.spec import JobSpec
from iris.model.states import JobState
from tests.builders import a_spec
from tests.strategies import CHEAP

ENDED = [state for state in JobState if state.ended]


def after(job: str, on: Condition = Condition.OK) -> Dependency:
    """A dependency whose run is called as its job."""
    return Dependency(job=job, on=on, run_id=job)


def test_jobs_are_named_as_in_every_command() -> None:
    """Several at once, of another user, of a job's children, and an earlier run of a name."""
    found = parse_dependencies("prepare, bob/train,ada/top/child,eval#2", Condition.ANY, "ada")

    assert [(each.job, each.number) for each in found] == [
        ("ada/prepare", None), ("bob/train", None), ("ada/top/child", None), ("ada/eval", 2)
    ]  # fmt: skip
    assert {each.on for each in found} == {Condition.ANY}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "train:3",
            (
                "after: 'train:3' is a task; a job waits for whole jobs; write train, for all of"
                " its tasks"
            ),
        ),
        ("train#x", "after: 'train#x' does not name a run; write NAME#NUMBER"),
        ("a,,b", "after: '' is not a valid name"),
        ("a b", "after: 'a b' is not a valid name"),
    ],
)
def test_a_wrong_name_is_refused_with_the_remedy(text: str, message: str) -> None:
    """The error occurs before anything is sent."""
    with pytest.raises(InvalidValue, match=re.escape(message)):
        parse_dependencies(text, Condition.OK, "ada")


def test_a_job_that_waits_for_both_ends_of_another_is_refused() -> None:
    """It could never start. A run and the latest of its name may be two runs; every end goes with
    either condition.
    """

    def check(*after: Dependency) -> None:
        check_demands(a_spec(after=after))

    other = after("ada/train#2").model_copy(update={"job": "ada/train", "number": 2})
    check(
        after("ada/train", Condition.FAIL),
        after("ada/train", Condition.ANY),
        after("ada/eval"),
        other,
    )
    check(after("ada/train"), after("ada/train", Condition.ANY))
    message = (
        "after: 'ada/train' cannot both succeed and fail, so the job would never start; use"
        " --after-any to wait for its end"
    )
    with pytest.raises(InvalidValue, match=re.escape(message)):
        check(after("ada/eval"), after("ada/train"), after("ada/train", Condition.FAIL))


@pytest.mark.parametrize("end", ENDED)
def test_every_end_is_a_success_or_a_failure(end: JobState) -> None:
    """So of a job and its `--after-fail` sibling exactly one starts, whatever happens."""
    allowed = {on: after("ada/train", on).allows(end) for on in Condition}

    assert allowed[Condition.ANY]
    assert allowed[Condition.OK] is (end is JobState.SUCCEEDED)
    assert allowed[Condition.FAIL] is not allowed[Condition.OK]


def test_an_end_that_the_service_has_forgotten_is_an_end_and_neither_success_nor_failure() -> None:
    """A job must not start on a guess, and must not wait for ever."""
    ends: dict[str, JobState | None] = {"ada/train": None}

    assert is_met([after("ada/train", Condition.ANY)], ends)
    assert (
        refusal([after("ada/train")], ends)
        == "it starts only if ada/train succeeds, and how that ended is no longer known"
    )
    assert refusal([after("ada/train", Condition.FAIL)], ends).startswith(
        "it starts only if ada/train fails, and how"
    )


def test_a_refusal_names_the_job_and_how_it_ended() -> None:
    """Its run, too, if the user named one."""
    numbered = after("ada/train").model_copy(update={"number": 1})

    for wanted, name in ((after("ada/train"), "ada/train"), (numbered, "ada/train#1")):
        assert (
            refusal([wanted], {"ada/train": JobState.FAILED})
            == f"it starts only if {name} succeeds, and that ended FAILED"
        )


@CHEAP
@given(
    st.lists(
        st.builds(after, st.sampled_from(["ada/a", "ada/b", "ada/c"]), st.sampled_from(Condition)),
        max_size=5,
    ),
    st.dictionaries(st.sampled_from(["ada/a", "ada/b", "ada/c"]), st.sampled_from([*ENDED, None])),
)
def test_a_job_starts_when_all_have_ended_as_it_wants_and_ends_with_the_first_that_has_not(
    wanted: list[Dependency], ends: dict[str, JobState | None]
) -> None:
    """Never both, and one of them as soon as all ends are known: nothing waits for ever."""
    met, refused = is_met(wanted, ends), refusal(wanted, ends)

    assert met == all(each.job in ends and each.allows(ends[each.job]) for each in wanted)
    assert not (met and refused)
    if all(each.job in ends for each in wanted):
        assert met or refused


def test_the_reason_names_the_jobs_that_have_not_ended() -> None:
    """The first ones: a list of a hundred would hide them."""
    wanted = [after("ada/a"), after("ada/b", Condition.ANY), after("ada/c", Condition.FAIL)]

    assert waiting_for(wanted, {}) == "waits for ada/a to succeed, ada/b to end and ada/c to fail"
    assert (
        waiting_for(wanted, {"ada/a": JobState.SUCCEEDED, "ada/b": None})
        == "waits for ada/c to fail"
    )
    assert listed(wanted[:2], {}) == "after ada/a and ada/b"
    assert (
        listed([after(f"ada/j{number}") for number in range(9)], {})
        == "after ada/j0, ada/j1, ada/j2 and 6 more"
    )


def test_a_job_names_each_dependency_once_and_not_too_many() -> None:
    """The specification is in the history of each of its tasks."""
    many = tuple(after(f"ada/j{number}") for number in range(MAX_DEPENDENCIES + 1))

    assert (
        JobSpec(user="ada", name="x", command=("true",), after=(many[0], many[0])).after == many[:1]
    )
    with pytest.raises(
        ValueError,
        match=r"after: '101 jobs' are too many; wait for at most 100; to wait for more, submit a job",
    ):
        JobSpec(user="ada", name="x", command=("true",), after=many)
