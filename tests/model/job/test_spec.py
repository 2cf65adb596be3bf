"""What a user may submit."""

import contextlib
from datetime import timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from iris.model.errors import InvalidValue
from iris.model.host.constraints import TPU_NAME, parse_constraint
from iris.model.job.spec import MAX_REPLICAS, MAX_SPEC_BYTES, Band, Coscheduling, JobSpec
from iris.model.units import MAX_DURATION
from tests.builders import a_spec, some


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("user", ""),
        ("user", "ada/lovelace"),
        ("name", "train:1"),
        ("name", "train@2"),
        ("name", "-train"),
        ("name", ".."),
        ("name", "train\n"),
        ("name", "x" * 61),
        ("command", ()),
        ("command", ("",)),
        ("command", ("  ", "x")),
        ("command", ("echo", "a\0b")),
        ("replicas", 0),
        ("replicas", MAX_REPLICAS + 1),
        ("max_retries_failure", -1),
        ("max_retries_preemption", -1),
        ("max_task_failures", -1),
        ("scheduling_timeout", timedelta(seconds=-1)),
        ("scheduling_timeout", MAX_DURATION + timedelta(seconds=1)),
        ("timeout", timedelta.max),
        ("grace", timedelta(seconds=-1)),
        ("grace", timedelta.max),
        ("env", {"": "1"}),
        ("env", {"A=B": "1"}),
        ("env", {"A": "x\0y"}),
        ("env", {"A\0B": "x"}),
        ("env", {"IRIS_JOB_ID": "mine"}),
        ("env", {"BLOB": "x" * MAX_SPEC_BYTES}),
        ("command", ("python", "-c", "x" * MAX_SPEC_BYTES)),
        # The scheduler would look for hosts with an attribute of this name, which no host can have.
        ("coscheduling", Coscheduling(group_by="")),
        ("coscheduling", Coscheduling(group_by="tpu name")),
        ("coscheduling", Coscheduling(group_by="!spot")),
    ],
)
def test_an_impossible_job_cannot_be_built_and_the_field_is_named(field: str, value: Any) -> None:
    """What is wrong is found before anything is sent, and said in terms of what the user typed."""
    with pytest.raises(ValidationError) as error:
        a_spec(**{field: value})

    (problem,) = error.value.errors()
    refusal = problem["ctx"]["error"]
    assert isinstance(refusal, InvalidValue)
    assert refusal.field == field
    assert str(refusal).startswith(f"{field}: ")


@pytest.mark.parametrize(("replicas", "groups"), [(4, 3), (2, 4), (4, 0), (4, -2)])
def test_a_gang_is_split_evenly_over_its_groups(replicas: int, groups: int) -> None:
    """Task i belongs on worker i of its slice: a slice that is half used would never be given to
    anybody.
    """
    with pytest.raises(ValidationError, match="cannot be split evenly"):
        a_spec(replicas=replicas, coscheduling=Coscheduling(group_by=TPU_NAME, groups=groups))


@pytest.mark.parametrize(
    ("changes", "together", "problem"),
    [
        ({"replicas": 4}, {"tasks_per_host": 3}, "does not divide the tasks evenly"),
        ({"replicas": 4}, {"tasks_per_host": 4, "groups": 2}, "does not divide the tasks evenly"),
        ({"replicas": 4}, {"tasks_per_host": 0}, "does not divide the tasks evenly"),
        ({"replicas": 4}, {"tasks_per_host": -2}, "does not divide the tasks evenly"),
        ({"replicas": 4}, {"tasks_per_host": 2, "group_by": TPU_NAME}, "cannot be used on slices"),
        (
            {"replicas": 4, "resources": some(memory=2**32)},
            {"tasks_per_host": 2},
            "more than any host can have",
        ),
    ],
)
def test_tasks_that_share_hosts_are_shared_out_evenly(
    changes: Any, together: Any, problem: str
) -> None:
    """The scheduler gets one kind of host for a gang. On a slice, the runtime counts one process
    for each host.
    """
    with pytest.raises(ValidationError, match=problem):
        a_spec(**changes, coscheduling=Coscheduling(**{"group_by": "zone"} | together))


def test_a_gang_puts_up_with_no_failed_task() -> None:
    """All tasks of a gang end together, so any other limit would have no effect."""
    with pytest.raises(ValidationError, match="max_task_failures"):
        a_spec(replicas=2, coscheduling=Coscheduling(group_by=TPU_NAME), max_task_failures=1)


def test_every_problem_of_a_job_is_said_at_once() -> None:
    """Users see all mistakes after one attempt to submit."""
    with pytest.raises(ValidationError) as error:
        a_spec(
            name="a b", replicas=0, max_retries_failure=-1, coscheduling=Coscheduling(group_by="!")
        )

    assert {problem["loc"][0] for problem in error.value.errors()} == {
        "name",
        "replicas",
        "max_retries_failure",
        "coscheduling",
    }


def test_the_limit_of_a_job_counts_bytes_not_letters() -> None:
    """The server counts bytes; forty thousand umlauts are eighty thousand of them."""
    with pytest.raises(ValidationError, match="env"):
        a_spec(env={"BLOB": "ü" * (MAX_SPEC_BYTES * 2 // 3)})


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "0-x.y_Z"},
        {"name": "x" * 60},
        {"replicas": MAX_REPLICAS},
        {"command": ("echo", "", " ", "ü", "a\nb")},
        {"grace": timedelta(0)},
        {"timeout": timedelta(milliseconds=1)},
        {"env": {"PATH": "", "iris_home": "x", "IRIS": "y"}},
        {"env": {"BLOB": "x" * (MAX_SPEC_BYTES // 2)}},
        {"replicas": 8, "coscheduling": Coscheduling(group_by=TPU_NAME, groups=2)},
        {
            "constraints": (
                parse_constraint("zone=a"),
                parse_constraint("tpu-vm-count >= 4", preferred=True),
            )
        },
        {"constraints": (parse_constraint('rack in (1, 1.0, true, "1")'),)},
    ],
)
def test_what_is_possible_is_accepted_and_survives_the_wire(changes: dict[str, Any]) -> None:
    """A specification is rebuilt from history at every replay: what was accepted once must be
    accepted again, unchanged.
    """
    spec = a_spec(**changes)

    assert spec == JobSpec.model_validate_json(spec.model_dump_json())
    assert all(getattr(spec, field) == value for field, value in changes.items())


def test_production_comes_before_interactive_before_batch() -> None:
    """The order in which the bands are served."""
    shuffled = [Band.BATCH, Band.PRODUCTION, Band.INTERACTIVE]

    assert sorted(shuffled, key=lambda band: band.rank) == [
        Band.PRODUCTION,
        Band.INTERACTIVE,
        Band.BATCH,
    ]


@pytest.mark.parametrize(
    ("device", "together", "allowed"),
    [
        ("tpu:v5litepod-16,v6e-16:4", Coscheduling(group_by="tpu-name"), True),
        ("tpu:v5litepod-16,v6e-16:4", Coscheduling(group_by="tpu-name", groups=2), False),
        ("tpu:v5litepod-16:4", Coscheduling(group_by="tpu-name", groups=2), True),
        ("gpu:auto:8", Coscheduling(group_by="zone"), False),
        ("gpu:H100:8", Coscheduling(group_by="zone"), True),
    ],
)
def test_a_gang_beyond_one_slice_names_the_variant_of_its_devices(
    device: str, together: Coscheduling, allowed: bool
) -> None:
    """A slice has one kind of chip; several slices, or a zone, may have several, and one program
    cannot mix them.
    """
    with (
        contextlib.nullcontext()
        if allowed
        else pytest.raises(ValidationError, match="name one variant")
    ):
        a_spec(replicas=4, resources=some(device=device), coscheduling=together)


def test_a_timeout_of_zero_is_no_timeout() -> None:
    """As in many tools. Without it, a job file that others generate cannot switch the limit off."""
    spec = a_spec(scheduling_timeout=timedelta(0), timeout=timedelta(0))
    assert (spec.scheduling_timeout, spec.timeout) == (None, None)
