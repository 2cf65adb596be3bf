"""Gangs on two simulated TPU slices: all or nothing, one fate, and what operators and stronger jobs
do to them.
"""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.cluster import USER, Cluster, Running, a_cluster, eventually, until

pytestmark = pytest.mark.long

#: Whoever evicts here need not wait for the usual two minutes.
SHORT = ("--min-run-time", "1s")
GANG = ("--tpu", "v5litepod-16")
#: A task without a gang that takes one host of a slice.
ONE_HOST = ("--device", "tpu:v5litepod-16:4")


@pytest.fixture(scope="module")
def tpus() -> Iterator[Cluster]:
    """Two slices of four hosts and a host without accelerators; every test gives back what it
    takes.
    """
    size = ("--slices", "2", "--cpu", "8", "--memory", "32g")
    with a_cluster(*GANG, *size, *SHORT, "--ephemeral", name="gangs") as running:
        yield running


@pytest.fixture(scope="module")
def slices(tpus: Cluster) -> list[list[str]]:
    """The hosts of both, each in the order of its workers. No test here ends a slice."""
    return list(tpus.slices("local-v5litepod-16").values())


@pytest.fixture(scope="module")
def plain(tpus: Cluster) -> str:
    """The host without accelerators."""
    ((host,),) = tpus.slices("local-cpu").values()
    return host


def explained(cluster: Cluster, job: str) -> dict[str, Any]:
    found: dict[str, Any] = cluster.iris("explain", job, "--json").json
    return found


def follow(cluster: Cluster, job: str, *arguments: str) -> Running:
    """Submit a job and follow it; it is known to the cluster by now."""
    running = cluster.begin("submit", "-n", job, *arguments)
    eventually(lambda: f"submitted {USER}/{job}" in running.err)
    return running


def attempts(cluster: Cluster, job: str, tasks: int, attempt: int) -> list[str]:
    """The hosts of a job whose tasks write them down, once all of them run for the so many-th
    time.
    """
    eventually(
        lambda: all(len(cluster.lines(f"{job}.{index}")) >= attempt for index in range(tasks))
    )
    return [cluster.lines(f"{job}.{index}")[attempt - 1] for index in range(tasks)]


def waits_for(go: str, job: str) -> tuple[str, ...]:
    """A program that writes its host down and runs until there is a file."""
    return "--", "sh", "-c", f"echo $IRIS_HOST_ID >> {job}.$IRIS_TASK_INDEX; {until(go)}"


def test_a_gang_has_a_task_on_every_host_of_a_slice_in_the_order_of_its_workers(
    tpus: Cluster, slices: list[list[str]]
) -> None:
    """Each knows its rank, its slice and where all of them meet; over two slices too."""
    told = (
        "echo $IRIS_TASK_INDEX $JAX_PROCESS_ID $IRIS_HOST_ID $IRIS_SLICE_INDEX $IRIS_NUM_TASKS"
        " $IRIS_COORDINATOR_ADDRESS"
    )
    one, two = (
        tpus.begin("submit", *GANG, "--slices", number, "--", "sh", "-c", f'echo "$({told})"').ends
        for number in ("1", "2")
    )
    for ends, number in ((one, 1), (two, 2)):
        # "[2] 2 2 local-…-w-2 0 4 127.0.0.1:30000", the task's number before its line.
        seen = sorted(
            (line.split() for line in ends().out.splitlines()), key=lambda words: int(words[1])
        )
        assert [words[0] for words in seen] == [f"[{rank}]" for rank in range(4 * number)]
        assert [words[1:3] for words in seen] == [[str(rank)] * 2 for rank in range(4 * number)]
        hosts = [words[3] for words in seen]
        assert [hosts[first : first + 4] for first in range(0, len(hosts), 4)] in (
            [[each] for each in slices] if number == 1 else [slices]
        )
        assert [words[4:6] for words in seen] == [
            [str(rank // 4), str(4 * number)] for rank in range(4 * number)
        ]
        (coordinator,) = {words[6] for words in seen}
        assert coordinator.startswith("127.0.0.1:")


def test_one_task_that_fails_for_good_ends_its_siblings_and_is_named(tpus: Cluster) -> None:
    """They are KILLED, not FAILED; the job's reason is the culprit's; the slice is free for the
    next.
    """
    others = " && ".join(f"[ -e sib.{index} ]" for index in (0, 1, 3))
    command = (
        f"touch sib.$IRIS_TASK_INDEX; [ $IRIS_TASK_INDEX = 2 ] || exec sleep 1000; until {others};"
        " do sleep 0.05; done; exit 3"
    )
    ran = tpus.iris("submit", "-n", "siblings", *GANG, "--", "sh", "-c", command, code=125)
    assert f"{USER}/siblings FAILED" in ran.err
    assert "task 2: " in ran.err
    why = explained(tpus, "siblings")
    (attempt,) = why["attempts"]
    assert (why["state"], attempt["account"]) == ("FAILED", "failures")
    assert [each["state"] for each in attempt["ends"]] == ["KILLED", "KILLED", "FAILED", "KILLED"]
    assert ["task 2" in each["reason"] for each in attempt["ends"]] == [True, True, False, True]


def test_a_gang_waits_with_true_numbers_and_starts_when_a_slice_is_free(tpus: Cluster) -> None:
    """Three free hosts are not a slice: nothing of it is placed; the cancelled gang's slice is."""
    tpus.submit("first", *GANG, *waits_for("never", "first"))
    tpus.submit("single", *ONE_HOST, *waits_for("single.go", "single"))
    hosts = attempts(tpus, "first", 4, 1)
    assert attempts(tpus, "single", 1, 1)[0] not in hosts
    second = follow(tpus, "second", *GANG, "--", "sh", "-c", "echo $IRIS_HOST_ID")
    why = explained(tpus, "second")
    assert (why["state"], why["code"], why["hosts"], why["ahead"]) == ("PENDING", "BUSY", 8, 0)
    assert (why["group_needs"], why["group_has"]) == (4, 3)
    assert (why["needed"]["devices"], why["attempts"]) == (4, [])
    assert "band interactive" in why["message"]
    assert all(
        task["state"] == "PENDING" and task["host"] is None
        for task in tpus.status("second")["tasks"]
    )
    tpus.iris("cancel", "first")
    assert sorted(line.split()[1] for line in second.ends().out.splitlines()) == hosts
    tpus.file("single.go").touch()


def test_a_drained_host_gives_up_its_whole_gang_which_goes_elsewhere(
    tpus: Cluster, slices: list[list[str]]
) -> None:
    """One preemption; meanwhile nobody gets its slice, and with `uncordon` somebody does."""
    drained = follow(
        tpus, "drained", *GANG, "--max-retries-preemption", "1", *waits_for("drained.go", "drained")
    )
    before = attempts(tpus, "drained", 4, 1)
    tpus.iris("host", "drain", before[1], "--reason", "fan broken")
    after = attempts(tpus, "drained", 4, 2)
    assert [before, after] in (slices, slices[::-1])
    another = follow(tpus, "another", *GANG, "--", "true")
    why, hosts = tpus.begin("explain", "another", "--json"), tpus.begin("host", "list", "--json")
    assert why.ends().json["code"] == "BUSY"
    (closed,) = [host for host in hosts.ends().json if host["state"] != "READY"]
    assert (closed["id"], closed["state"], closed["reason"]) == (
        before[1],
        "DRAINED",
        f"drained: fan broken (by {USER})",
    )
    tpus.iris("host", "uncordon", before[1])
    another.ends()
    tpus.file("drained.go").touch()
    drained.ends()
    evicted, succeeded = explained(tpus, "drained")["attempts"]
    assert [evicted["account"], evicted["hosts"]] == ["preemptions", before]
    assert [succeeded["account"], succeeded["hosts"]] == ["nobody", after]
    assert f"host {before[1]} is drained: fan broken" in evicted["reason"]


def test_operators_close_hosts_and_clusters_and_users_hold_jobs_and_each_says_so(
    tpus: Cluster, plain: str
) -> None:
    """What runs runs on. Opened, resumed and released, everything starts; whoever waits is told for
    what.
    """
    runs = follow(tpus, "runs", "--cpu", "4", *waits_for("runs.go", "runs"))
    assert attempts(tpus, "runs", 1, 1) == [plain]
    tpus.iris("host", "cordon", plain, "--reason", "new disk")
    shut_out = follow(tpus, "shut-out", "--", "echo", "in at last")
    held = follow(tpus, "held", "--", "touch", "held.ran")
    tpus.iris("hold", "held", "--reason", "no data yet")
    looks = [tpus.begin("explain", job, "--json") for job in ("shut-out", "held")]
    outside, back = (look.ends().json for look in looks)
    assert (outside["state"], outside["code"]) == ("PENDING", "CLOSED")
    assert f"cordoned: new disk (by {USER})" in outside["message"]
    assert "iris host uncordon" in outside["remedy"]
    assert (back["state"], back["message"]) == ("HELD", f"held by {USER}: no data yet")
    tpus.iris("cluster", "pause", "--reason", "new switches")
    tpus.iris("host", "uncordon", plain)
    looks = [tpus.begin("explain", "shut-out", "--json"), tpus.begin("cluster", "status", "--json")]
    outside, cluster = (look.ends().json for look in looks)
    assert outside["code"] == "PAUSED"
    assert f"new switches (by {USER})" in outside["message"]
    assert (cluster["paused"], cluster["waiting"], cluster["held"]) == (
        f"new switches (by {USER})",
        1,
        1,
    )
    tpus.file("runs.go").touch()
    runs.ends()
    tpus.iris("cluster", "resume")
    assert shut_out.ends().out == "in at last\n"
    assert not tpus.file("held.ran").exists()
    tpus.iris("release", "held")
    held.ends()
    assert tpus.file("held.ran").exists()


def test_a_job_that_is_raised_to_a_stronger_band_evicts_a_weaker_gang_once(tpus: Cluster) -> None:
    """Whole, as one preemption; the victim goes back into the queue and runs when there is room."""
    victim = follow(
        tpus,
        "victim",
        *GANG,
        "--slices",
        "2",
        "--priority",
        "batch",
        *waits_for("victim.go", "victim"),
    )
    attempts(tpus, "victim", 8, 1)
    urgent = follow(tpus, "urgent", *GANG, "--priority", "batch", *waits_for("urgent.go", "urgent"))
    assert explained(tpus, "urgent")["code"] == "BUSY"  # nobody evicts in its own band
    tpus.iris("priority", "urgent", "production")
    attempts(tpus, "urgent", 4, 1)
    assert explained(tpus, "victim")["code"] == "BUSY"
    for job in ("urgent", "victim"):
        tpus.file(f"{job}.go").touch()
    urgent.ends()
    victim.ends()
    assert [len(tpus.lines(f"victim.{index}")) for index in range(8)] == [2] * 8
    evicted, succeeded = explained(tpus, "victim")["attempts"]
    assert (evicted["account"], succeeded["account"]) == ("preemptions", "nobody")
    assert f"{USER}/urgent" in evicted["reason"]
    assert "production" in evicted["reason"]


def test_what_would_become_of_a_job_is_told_without_starting_it(
    tpus: Cluster, slices: list[list[str]]
) -> None:
    """`--dry-run` starts nothing; it and `--require-feasible` refuse what nobody there could
    run.
    """
    submits = {
        "would-start": (["--dry-run", "--json", *GANG], 0),
        "would-not": (["--dry-run", "--gpu", "H100x8"], 5),
        "refused": (["--require-feasible", "--tpu", "v5litepod-32"], 5),
        "warned": (["-q", "--tpu", "v5litepod-32"], 0),
    }
    begun = {
        name: tpus.begin("submit", "-n", name, *options, "--", "true")
        for name, (options, _) in submits.items()
    }
    ran = {name: begun[name].ends(code) for name, (_, code) in submits.items()}
    starts = ran["would-start"].json
    assert (starts["starts"], starts["feasible"], starts["refusal"]) == (True, True, None)
    assert starts["hosts"] in slices
    assert [(each["group"], each["hosts"], each["fits"]) for each in starts["verdicts"]] == [
        ("local-v5litepod-16", 8, True),
        ("local-cpu", 1, False),
    ]
    assert "NO_DEVICE  " in ran["would-not"].out
    assert "gpu:H100" in ran["would-not"].err
    assert "tpu:v5litepod-16" in ran["refused"].err
    assert re.search("^warning: .* tpu:v5litepod-32", ran["warned"].err, re.MULTILINE)
    listed = {job["id"] for job in tpus.iris("jobs", "--json").json}
    assert {f"{USER}/{name}" for name in submits} & listed == {f"{USER}/warned"}
    tpus.iris("cancel", "warned")


def test_what_is_not_there_or_makes_no_sense_is_refused_with_a_way_out(
    tpus: Cluster, plain: str
) -> None:
    """Exit code 3 for names that nobody has, 5 for what cannot be done now."""
    wrong = {
        ("host", "cordon", f"{plain}x"): (3, f"did you mean {plain}"),
        ("cluster", "pause", "--group", "gpus"): (3, "local-cpu, local-v5litepod-16"),
        ("priority", "nobody/knows", "batch"): (3, "nobody/knows"),
        ("release", "siblings"): (5, "FAILED"),
        ("explain", "siblings:4"): (3, "0 to 3"),
    }
    begun = {command: tpus.begin(*command) for command in wrong}
    for command, (code, words) in wrong.items():
        assert words in begun[command].ends(code).err, command


def test_gangs_that_wait_still_wait_in_order_when_the_control_plane_was_killed(
    tpus: Cluster,
) -> None:
    """With their reasons and their places; they start one after the other when there is room."""
    both = (*GANG, "--slices", "2")
    tpus.submit("before", *both, *waits_for("before.go", "before"))
    attempts(tpus, "before", 8, 1)
    for name in ("one", "two", "three"):
        tpus.submit(
            name, *both, "--", "sh", "-c", f"[ $IRIS_TASK_INDEX != 0 ] || echo {name} >> order"
        )
    killed = tpus.kill("controller")
    eventually(lambda: tpus.pid("controller") not in (None, killed))
    # The new control plane answers.
    eventually(lambda: tpus.iris("explain", "one", "--json", code=None).code == 0)
    looks = [tpus.begin("explain", name, "--json") for name in ("one", "three")]
    for look, ahead in zip(looks, (0, 2), strict=True):
        why = look.ends().json
        assert (why["state"], why["code"], why["ahead"]) == ("PENDING", "BUSY", ahead)
        assert (why["group_needs"], why["group_has"]) == (4, 0)
    tpus.file("before.go").touch()
    tpus.iris("wait", "one", "two", "three")
    assert tpus.lines("order") == ["one", "two", "three"]


def test_the_death_of_one_agent_bounces_nothing(tpus: Cluster) -> None:
    """The gang computes on, and the next agent goes on with its member."""
    job = follow(tpus, "adopted", *GANG, *waits_for("adopted.go", "adopted"))
    victim = attempts(tpus, "adopted", 4, 1)[2]
    killed = tpus.kill("agent", victim)
    eventually(lambda: tpus.pid("agent", victim) not in (None, killed))
    tpus.file("adopted.go").touch()
    job.ends()
    assert [task["attempt"] for task in tpus.status("adopted")["tasks"]] == [1] * 4


def test_the_loss_of_one_host_bounces_its_whole_gang_together_once(tpus: Cluster) -> None:
    """All tasks begin anew with the same number, as one preemption; no failure is charged, although
    none was allowed.
    """
    command = (
        "echo $IRIS_HOST_ID >> lost.$IRIS_TASK_INDEX; [ $IRIS_ATTEMPT != 1 ] || exec sleep 1000;"
        " echo $IRIS_ATTEMPT"
    )
    budgets = ("--max-retries", "0", "--max-retries-preemption", "1")
    job = follow(tpus, "lost", *GANG, *budgets, "--", "sh", "-c", command)
    victim = attempts(tpus, "lost", 4, 1)[2]
    tpus.crash(victim)
    assert sorted(job.ends().out.splitlines()) == [f"[{index}] 2" for index in range(4)]
    assert [len(tpus.lines(f"lost.{index}")) for index in range(4)] == [2] * 4
    lost, succeeded = explained(tpus, "lost")["attempts"]
    assert (lost["account"], succeeded["account"], succeeded["number"]) == (
        "preemptions",
        "nobody",
        2,
    )
    assert victim in lost["reason"]
    assert {each["state"] for each in lost["ends"]} <= {"WORKER_FAILED", "PREEMPTED"}
    assert all(
        f"task 2: {lost['reason']}" in each["reason"] for each in lost["ends"] if each["index"] != 2
    )
