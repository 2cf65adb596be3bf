"""What a job of a job inherits, and what a submission does about a job that has its name."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris.client.build.inheritance import inherit
from iris.model.errors import InvalidJob
from iris.model.host.constraints import parse_constraint
from iris.model.job.bundles import Bundle
from iris.model.job.children import Parent, Reuse, reuse
from iris.model.job.environments import EnvironmentSpec
from iris.model.job.spec import Band, JobSpec
from iris.model.states import JobState
from tests.builders import a_spec, some

FILES = Bundle(sha256="0" * 64, size=1)
PARENT = a_spec(
    name="top",
    resources=some(cpu=8, device="tpu:v5litepod-4:4"),
    env={"LR": "1", "SEED": "2", "TOKEN": "plain"},
    secrets={"KEY": "env:KEY"},
    constraints=(parse_constraint("zone = a"), parse_constraint("driver >= 5")),
    bundle=FILES,
    environment=EnvironmentSpec(pip=("numpy",), project="apps/train", build_env={"V": "1"}),
    image="python:3.11",
    band=Band.BATCH,
    replicas=4,
    timeout=None,
)


def inherited(parent: JobSpec = PARENT, given: tuple[str, ...] = (), **child: Any) -> JobSpec:
    return inherit(a_spec(name="child", **child), parent, given=given)


def test_a_child_has_its_parents_environment_and_never_its_resources() -> None:
    """A launcher with one core must not become twenty jobs with a slice each."""
    child = inherited()

    assert (child.env, child.secrets, child.image, child.band) == (
        PARENT.env,
        PARENT.secrets,
        "python:3.11",
        Band.BATCH,
    )
    assert (child.bundle, child.environment) == (FILES, PARENT.environment)
    assert [str(each) for each in child.constraints] == ["zone = a"]
    assert (child.resources, child.replicas) == (a_spec().resources, 1)


def test_what_is_given_for_the_child_counts_and_a_variable_has_one_value() -> None:
    """As everywhere, the nearer wins."""
    child = inherited(
        env={"LR": "3", "KEY": "plain"},
        secrets={"TOKEN": "env:TOKEN"},
        constraints=(parse_constraint("region = b"),),
        environment=EnvironmentSpec(pip=("scipy",)),
        image="python:3.12",
        band=Band.INTERACTIVE,
        given=("priority",),
    )
    assert child.env == {"LR": "3", "SEED": "2", "KEY": "plain"}
    assert child.secrets == {"TOKEN": "env:TOKEN"}
    assert [str(each) for each in child.constraints] == ["region = b"]
    assert child.environment == EnvironmentSpec(
        pip=("scipy",), project="apps/train", build_env={"V": "1"}
    )
    assert (child.image, child.band) == ("python:3.12", Band.INTERACTIVE)


def test_a_child_with_files_of_its_own_has_the_environment_that_goes_with_them() -> None:
    """The packages and extras of another project are of no use to it."""
    own = Bundle(sha256="1" * 64, size=1)
    child = inherited(given=("files",), bundle=own)

    assert (child.bundle, child.environment) == (own, EnvironmentSpec())
    assert inherited(given=("files",), workdir="/home/ada").workdir is None, (
        "the image does not have this directory"
    )
    assert inherited(given=("files", "workdir"), workdir="/data").workdir == "/data"


def test_a_child_that_becomes_too_large_by_what_it_inherits_is_refused() -> None:
    """Before it is submitted, with the field that is too large."""
    with pytest.raises(InvalidJob, match=r"env: '.* bytes' makes the job larger than"):
        inherited(a_spec(env={"A": "x" * 40_000}), env={"B": "x" * 40_000})


def test_the_names_of_a_family_have_a_limit_together() -> None:
    """Temporal's databases keep ids of 255 characters."""
    parent = Parent(
        job="/".join(["ada", *["x" * 50] * 3]),
        run_id="r",
        current_run="r",
        task=0,
        attempt=1,
        work="w",
    )
    with pytest.raises(
        ValueError, match="including the names of its parent jobs; the limit is 160"
    ):
        a_spec(name="child", parent=parent)


def submission(**changes: Any) -> Parent:
    settings = {
        "job": "ada/top",
        "run_id": "r1",
        "current_run": "r1",
        "task": 0,
        "attempt": 1,
        "work": "w",
    } | changes
    return Parent(**settings)


submissions = st.builds(
    submission,
    run_id=st.sampled_from(["r1", "r2"]),
    task=st.integers(0, 1),
    attempt=st.integers(1, 2),
    work=st.sampled_from(["w", "v"]),
    named=st.booleans(),
)


@given(child=submissions, found=st.none() | submissions, state=st.sampled_from(JobState))
def test_a_live_job_is_never_replaced_and_a_submission_never_gets_the_result_of_other_work(
    child: Parent, found: Parent | None, state: JobState
) -> None:
    """Whatever was submitted before, by whom and how it went."""
    decision = reuse(child, found, state)

    if not state.ended:
        assert decision is not Reuse.START
    if decision is Reuse.ATTACH:
        assert found is not None
        assert (found.job, found.run_id, found.work) == (child.job, child.run_id, child.work)
        assert state is JobState.SUCCEEDED or not state.ended
    if decision is Reuse.RENAME:
        assert not child.named
