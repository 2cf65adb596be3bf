"""Names that people and machines rely on."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris.model import names, store_paths
from iris.model.errors import InvalidValue
from tests.strategies import CHEAP

confusable = st.sampled_from(["a", "1", "a1", "a.1", "1-1", "1.log"])
good_names = st.from_regex(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,59}", fullmatch=True)


@pytest.mark.parametrize("name", ["a", "0", "Train.v2_final-3", "x" * 60])
def test_a_name_is_letters_digits_dots_dashes_and_underscores(name: str) -> None:
    """What people call their jobs."""
    assert name == names.check_name("name", name)


@pytest.mark.parametrize(
    "name",
    ["", "x" * 61, "a/b", "a:b", "a@b", "a b", "-a", ".a", "..", "_a", "é", "a\n", "a\0", "٣"],
)
def test_a_name_that_a_path_or_an_id_could_trip_over_is_refused(name: str) -> None:
    """Names end up in workflow ids, log paths and shell commands: a slash would be another user's
    job.
    """
    with pytest.raises(InvalidValue, match=r"^user: "):
        names.check_name("user", name)


@pytest.mark.parametrize(
    ("spelled", "promised"),
    [
        (names.job_workflow("dev", "ada/train"), "dev/job/ada/train"),
        (names.task_workflow("dev", "ada/train:3"), "dev/task/ada/train:3"),
        (names.slice_workflow("dev", "s1"), "dev/slice/s1"),
        (names.scheduler_workflow("dev"), "dev/scheduler"),
        (names.autoscaler_workflow("dev"), "dev/autoscaler"),
        (names.control_queue("dev"), "dev/control"),
        (names.planner_queue("dev"), "dev/planner"),
        (names.patient_queue("dev"), "dev/patient"),
        (names.host_queue("dev", "h1"), "dev/host/h1"),
        (names.job_id("ada", "train"), "ada/train"),
        (names.task_id("ada/train", 3), "ada/train:3"),
        (names.attempt_id("ada/train", 3, 2), "ada/train:3@2"),
    ],
)
def test_ids_are_spelled_as_the_design_promises(spelled: str, promised: str) -> None:
    """They are typed into Temporal's Web UI, and a cluster that is upgraded must find its workflows
    again.
    """
    assert promised == spelled


@CHEAP
@given(good_names, good_names, good_names, st.integers(0, 999))
def test_an_id_is_taken_apart_into_what_it_was_made_of(
    cluster: str, user: str, name: str, index: int
) -> None:
    """A client finds jobs by their workflows, a fleet its hosts by their queues."""
    job = names.job_id(user, name)

    assert job == names.job_of_workflow(names.job_workflow(cluster, job))
    assert names.host_of_queue(cluster, names.host_queue(cluster, name)) == name
    assert names.incarnation_of(names.worker_identity(name, user)) == user


@pytest.mark.parametrize(
    "queue", ["dev/control", "dev/planner", "prod/host/h1", "dev2/host/h1", "xdev/host/h1"]
)
def test_a_queue_of_another_kind_or_cluster_belongs_to_no_host(queue: str) -> None:
    """Two clusters may share a namespace; one must not count the other's hosts as its own."""
    assert names.host_of_queue("dev", queue) is None


@CHEAP
@given(
    st.sets(
        st.tuples(confusable, confusable, st.integers(0, 12), st.integers(1, 12)),
        min_size=2,
        max_size=4,
    )
)
def test_two_attempts_never_share_a_name(attempts: set[tuple[str, str, int, int]]) -> None:
    """Capacity, logs and processes are distinguished by these names."""
    jobs = [(names.job_id(user, name), index, attempt) for user, name, index, attempt in attempts]

    assert len({names.attempt_id(*each) for each in jobs}) == len(attempts)
    assert len(
        {store_paths.attempt_logs(job, "run", index, attempt) for job, index, attempt in jobs}
    ) == len(attempts)


@pytest.mark.parametrize("spell", [names.attempt_key, store_paths.job_logs])
def test_a_name_used_again_is_another_attempt_with_other_logs(
    spell: Callable[[str, str], str],
) -> None:
    """A job's name may be used again; a late word about the first must not touch the second, nor
    its logs be mixed.
    """
    first, second = "019a0000-0001-7abc-8000-000000000000", "019a0000-0002-7abc-8000-000000000000"

    assert spell("ada/train", first) != spell("ada/train", second)


@CHEAP
@given(st.integers(0, 9_999_999_999), st.integers(0, 9_999_999_999))
def test_log_chunks_sort_by_name_as_they_were_written(one: int, other: int) -> None:
    """Object stores list by name; a reader must not see line ten before line two."""
    assert (store_paths.log_chunk("p", one) < store_paths.log_chunk("p", other)) is (one < other)


def test_the_longest_workflow_id_fits_into_the_servers_column() -> None:
    """Temporal's SQL stores keep ids in 255 characters; the longest names allowed must be ones that
    work.
    """
    cluster, user, name = ("x" * names.MAX_NAME for _ in range(3))
    longest = names.task_workflow(
        names.check_name("cluster", cluster), names.task_id(names.job_id(user, name), 999)
    )

    assert len(longest) < 200
