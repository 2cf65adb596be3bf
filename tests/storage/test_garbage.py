"""What of a store no job needs any more."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris.model import names, store_paths
from iris.storage.garbage import Needed, Stored, unused

NOW = datetime(2026, 11, 1, tzinfo=UTC)
OLD = NOW - timedelta(days=60)
RUN = "0198c0de-aaaa-7bbb-8ccc-0123456789ab"
NOTHING = Needed(frozenset(), frozenset(), frozenset())


def folders(*paths: str, needed: Needed = NOTHING, modified: datetime = OLD) -> list[str]:
    """The folders that are deleted of a store with these objects."""
    stored = [Stored(path, 1, modified) for path in paths]
    return [
        each.folder
        for each in unused(stored, needed, NOW - timedelta(days=30), NOW - timedelta(days=30))
    ]


@pytest.mark.parametrize(
    ("path", "folder"),
    [
        (
            f"{store_paths.attempt_logs('ada/train', RUN, 0, 1)}/0000000001.log",
            store_paths.job_logs("ada/train", RUN),
        ),
        (
            f"{store_paths.attempt_outputs('ada/train/eval', RUN, 3, 1)}/.iris/result",
            store_paths.job_outputs("ada/train/eval", RUN),
        ),
        (
            f"{store_paths.task_checkpoints('ada/train', RUN, 0)}/1/0000000001.json",
            store_paths.job_checkpoints("ada/train", RUN),
        ),
        (
            f"{store_paths.job_checkpoints('ada/train', RUN)}/shared/step-3/weights",
            store_paths.job_checkpoints("ada/train", RUN),
        ),
        (store_paths.bundle("ab" * 32), store_paths.bundle("ab" * 32)),
        (f"{store_paths.exec_files('ada/train', '0c1d')}/in/1", "exec/ada/0c1d"),
        (
            store_paths.actor_certificate("ada-train-0198c0de-aaaa"),
            "actors/ada-train-0198c0de-aaaa",
        ),
        (
            f"{store_paths.agent_logs('euw4', 'host-1')}/20260101/0000000001.log",
            f"{store_paths.agent_logs('euw4', 'host-1')}/20260101",
        ),
        (
            f"{store_paths.pool_files(names.pool_queue('euw4', 'ada/pool', 'a1b2'))}/calls/1",
            "pools/euw4/pool/ada/pool-a1b2",
        ),
        (
            store_paths.simulation_report("euw4", "more"),
            f"{store_paths.simulation_reports('euw4')}/more",
        ),
    ],
)
def test_the_folders_of_all_that_jobs_leave_are_deleted_when_they_are_old(
    path: str, folder: str
) -> None:
    """Every kind of object that Iris writes: what is missing here grows for ever."""
    assert folders(path) == [folder]
    assert folders(path, modified=NOW) == []


@pytest.mark.parametrize(
    "path",
    [
        "clusters/euw4/uid",
        f"{store_paths.usage_records('euw4')}/2026-08-01/ab12.jsonl",
        "data/train.csv",
        "logs/ada/notes.txt",
        "outputs/ada/my/own/file",
        "bundles",
    ],
)
def test_what_iris_does_not_delete_stays(path: str) -> None:
    """The cluster's identity, and what users store in the same bucket."""
    assert folders(path) == []


def test_a_folder_with_a_young_object_is_kept_as_a_whole() -> None:
    """Half a checkpoint is none."""
    prefix = store_paths.task_checkpoints("ada/train", RUN, 0)
    stored = [
        Stored(f"{prefix}/1/files/a-1", 1, OLD),
        Stored(f"{prefix}/1/0000000009.json", 1, NOW),
    ]
    assert unused(stored, NOTHING, NOW - timedelta(days=30), NOW - timedelta(days=30)) == []


def test_what_a_live_job_starts_from_is_kept() -> None:
    """Its bundles, which it may share with ended jobs, and the checkpoint of another job."""
    source = store_paths.job_checkpoints("ada/old", RUN)
    needed = Needed(frozenset(), frozenset({store_paths.bundle("a")}), frozenset({source}))
    assert folders(
        store_paths.bundle("a"), store_paths.bundle("b"), f"{source}/0/1/1.json", needed=needed
    ) == [store_paths.bundle("b")]


def test_the_files_of_a_pool_are_kept_while_any_of_its_workers_jobs_lives() -> None:
    """Later workers have names of their own, `ada/pool-2`, and the calls that wait for them have
    files.
    """
    files = f"{store_paths.pool_files(names.pool_queue('euw4', 'ada/pool', 'a1b2'))}/calls/1"
    assert folders(files, needed=Needed(frozenset({"ada/pool-2"}), frozenset(), frozenset())) == []
    assert folders(files, needed=Needed(frozenset({"ada/other-2"}), frozenset(), frozenset())) == [
        "pools/euw4/pool/ada/pool-a1b2"
    ]


def test_a_report_of_a_simulation_is_no_file_of_a_job() -> None:
    """The job `euw4/more` is that of a user who is called as the cluster is."""
    needed = Needed(frozenset({"euw4/more"}), frozenset(), frozenset())
    assert folders(store_paths.simulation_report("euw4", "more"), needed=needed) == [
        "simulations/euw4/more"
    ]


NAMES = st.sampled_from(["a", "ab", "a-b", "b", "0198c0de-aaaa", "3", "shared"])
JOBS = st.lists(NAMES, min_size=2, max_size=4).map("/".join)


@given(jobs=st.lists(JOBS, min_size=1, max_size=6), live=st.integers(0, 5))
def test_nothing_of_a_live_job_its_parents_or_its_children_is_deleted(
    jobs: list[str], live: int
) -> None:
    """Whatever the jobs are called: a name may look like the id of a run."""
    alive = jobs[live % len(jobs)]
    needed = Needed(frozenset({names.root_id(alive)}), frozenset(), frozenset())
    of_job = {
        job: (
            f"{store_paths.attempt_logs(job, RUN, 0, 1)}/1.log",
            f"{store_paths.task_checkpoints(job, RUN, 0)}/1/1.json",
            store_paths.actor_certificate(
                store_paths.job_uid(store_paths.attempt_logs(job, RUN, 0, 1))
            ),
            f"{store_paths.pool_files(names.pool_queue('c', job, 'a1b2'))}/calls/1",
        )
        for job in jobs
    }
    stored = [Stored(path, 1, OLD) for paths in of_job.values() for path in paths]
    deleted = {path for each in unused(stored, needed, NOW, NOW) for path in each.paths}
    assert not deleted & set(of_job[alive])
    if not any(names.root_id(job).startswith(names.root_id(alive)) for job in jobs if job != alive):
        others = {path for job, paths in of_job.items() if job != alive for path in paths[:2]}
        assert others <= deleted | set(of_job[alive])
