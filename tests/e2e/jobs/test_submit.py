"""From the command line to a program on a host, and back: output, states, JSON and exit codes."""

import json
import re
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tests.e2e.cluster import SECRET, USER, Cluster, a_home, eventually, until


def test_a_submitted_command_runs_and_its_output_and_end_come_back(cluster: Cluster) -> None:
    """Attached submit: the program's output on standard output, Iris' own words on standard error,
    exit code 0.
    """
    ran = cluster.iris("submit", "-n", "hello", "--", "sh", "-c", "echo out; echo err >&2")
    assert sorted(ran.out.splitlines()) == ["err", "out"]
    assert f"submitted {USER}/hello" in ran.err
    assert f"{USER}/hello SUCCEEDED" in ran.err


def test_submit_as_json_names_the_job_and_its_workflow(cluster: Cluster) -> None:
    """The contract of `submit --json`; the ids are those that Temporal knows."""
    submitted = cluster.submit("contract-submit", "--", "true")
    assert set(submitted) == {"id", "workflow_id", "run_id", "ui", "dashboard", "estimate"}
    assert submitted["id"] == f"{USER}/contract-submit"
    described = cluster.temporal(
        "workflow", "describe", "-w", submitted["workflow_id"], "-r", submitted["run_id"]
    )
    assert described["workflowExecutionInfo"]["execution"]["runId"] == submitted["run_id"]
    assert submitted["run_id"] in submitted["ui"]


def test_a_program_has_the_machines_python_and_reaches_its_cluster(cluster: Cluster) -> None:
    """Not the agent's packages; and `iris`, although the cluster's state is not where it is by
    default.
    """
    program = (
        "python -c 'import temporalio'; iris submit -q -n inner -- true; env -u IRIS_STATE_DIR iris"
        " wait ada/outer/inner"
    )
    ran = cluster.iris("submit", "-n", "outer", "--cpu", "0.5", "--", "sh", "-c", f"{program} 2>&1")
    assert "No module named 'temporalio'" in ran.out
    assert f"{USER}/outer/inner\n{USER}/outer/inner SUCCEEDED" in ran.out


def test_a_quiet_submit_prints_the_id_and_nothing_else(cluster: Cluster) -> None:
    """For scripts: `job=$(iris submit -q -- …)`."""
    ran = cluster.iris("submit", "-q", "-n", "quiet", "--", "true")
    assert (ran.out, ran.err) == (f"{USER}/quiet\n", "")


@pytest.mark.long
def test_a_job_file_submits_its_jobs_and_says_where_it_stopped(cluster: Cluster) -> None:
    """One document is followed as a command line is; of several that stop in the middle, those that
    run are named.
    """
    cluster.file("one.yaml").write_text(
        "name: from-file\nenv: {WHO: '${WHO:-nobody}'}\ncommand: echo hello $WHO\n"
    )
    ran = cluster.iris("submit", "-f", "one.yaml", "-e", "WHO=ada")
    assert ran.out == "hello ada\n"
    cluster.submit("occupied", "--", "sh", "-c", until("occupied.go"))
    names = ("before", "occupied", "after")
    cluster.file("three.yaml").write_text(
        "---\n".join(f"name: {name}\ncommand: [true]\n" for name in names)
    )
    stopped = cluster.iris("submit", "-q", "-f", "three.yaml", code=5)
    assert stopped.out == f"{USER}/before\n"
    assert "three.yaml, document 2" in stopped.err
    cluster.file("occupied.go").touch()


def test_jobs_that_no_host_can_run_are_named_in_their_order(cluster: Cluster) -> None:
    """A list that begins with its second entry reads as if the first were missing."""
    cluster.file("large.txt").write_text(
        "-n one --cpu 100000 -- true\n-n two --cpu 200000 -- true\n"
    )
    cluster.file("large.yaml").write_text(
        "cpu: 100000\ncommand: 'true'\n---\ncpu: 200000\ncommand: 'true'\n"
    )
    for given, places in (
        (("--batch", "large.txt"), ("line 1: no host", "line 2: no host")),
        (("-f", "large.yaml"), ("document 1: no host", "document 2: no host")),
    ):
        said = cluster.iris("submit", "--dry-run", *given, code=5).err
        assert 0 < said.index(places[0]) < said.index(places[1])


@pytest.mark.long
def test_a_batch_that_was_interrupted_is_submitted_whole_by_the_same_command(
    cluster: Cluster,
) -> None:
    """A loop of submits is a process each, and repeated after a failure it would start jobs twice,
    also those that have ended.
    """
    cluster.submit("batched", "--", "sh", "-c", until("batched.go"))
    lines = [
        "# three jobs",
        "-n first -- true",
        "-n batched --cpu 2 -- true",
        "",
        "-- sh -c 'exit 0'",
    ]
    cluster.file("jobs.txt").write_text("\n".join(lines))
    command = ("submit", "--batch", "jobs.txt", "--no-workspace")

    stopped = cluster.iris(*command, code=5)
    assert f"submitted {USER}/first\n" in stopped.err
    assert "line 3" in stopped.err
    assert f"error: job {USER}/batched" in stopped.err
    cluster.iris("wait", "first")
    cluster.file("batched.go").touch()
    cluster.iris("wait", "batched")

    whole = cluster.iris(*command).err
    assert f"submitted {USER}/first before\nsubmitted {USER}/batched\n" in whole
    assert "--batch-key" in whole
    again = cluster.iris(*command, "--json")
    assert [(job["line"], job["before"]) for job in again.json] == [(2, True), (3, True), (5, True)]
    expected = {"line", "before", "id", "workflow_id", "run_id", "ui", "dashboard"}
    assert set(again.json[0]) == expected
    for job in again.json:
        cluster.iris("wait", job["id"])
    cluster.file("other.txt").write_text("-n first -- echo other")
    cluster.iris("submit", "-q", "--batch", "other.txt", "--no-workspace")
    cluster.iris("wait", "first")
    # Whoever has the name now.
    eventually(
        lambda: [job["before"] for job in cluster.iris(*command, "--json").json] == [True] * 3
    )
    another = cluster.iris(*command, "--batch-key", "2", "-q").out.splitlines()
    assert another[:2] == [f"{USER}/first", f"{USER}/batched"]
    assert another[2] != again.json[2]["id"]


def test_the_status_of_a_job_has_every_key_of_its_contract(cluster: Cluster) -> None:
    """`status --json` of a job of two tasks that has ended: states, hosts, exit codes, times in
    order.
    """
    cluster.submit(
        "contract-status", "--replicas", "2", "--", "sh", "-c", "exit $((IRIS_TASK_INDEX * 3))"
    )
    cluster.iris("wait", "contract-status", code=125)
    status = cluster.status("contract-status")
    keys = {
        "id",
        "parent",
        "state",
        "reason",
        "user",
        "submitted_at",
        "started_at",
        "finished_at",
        "tasks",
    }
    keys |= {
        "commit",
        "bundle",
        "tags",
        "note",
        "notifications",
        "cancelling",
        "command",
        "resources",
        "priority",
        "env",
    }
    keys |= {"secrets", "image", "after", "from_checkpoint", "page", "limits"}
    assert set(status) == keys
    assert (status["id"], status["user"], status["state"]) == (
        f"{USER}/contract-status",
        USER,
        "FAILED",
    )
    times = [
        datetime.fromisoformat(status[key]) for key in ("submitted_at", "started_at", "finished_at")
    ]
    assert times == sorted(times)
    assert all(
        set(task) == {"index", "state", "host", "attempt", "exit_code", "reason", "cancelling"}
        for task in status["tasks"]
    )
    failed = status["tasks"][1]
    assert (failed["index"], failed["state"], failed["host"], failed["attempt"]) == (
        1,
        "FAILED",
        cluster.only_host(),
        1,
    )
    assert failed["exit_code"] == 3
    assert status["reason"].endswith(f"task 1: {failed['reason']}")


@pytest.mark.long
def test_a_list_says_that_it_has_not_all_jobs_and_shows_the_others_by_pages(
    cluster: Cluster,
) -> None:
    """The fifty-first of a sweep was missing without a word. Scripts get the note beside their
    JSON.
    """
    for name in ("paged-1", "paged-2", "paged-3"):
        cluster.iris("submit", "-q", "-n", name, "--", "true")
    paged = ("jobs", "--all", "--filter", "paged-", "--limit", "2")

    first, second = (cluster.iris(*paged, "--page", page) for page in ("1", "2"))
    assert [line.split()[0] for line in first.out.splitlines()[1:3]] == [
        f"{USER}/paged-3",
        f"{USER}/paged-2",
    ]
    assert "\npage 1: 2 job(s); there are more" in first.out
    assert f"{USER}/paged-1 " in second.out
    assert "\npage 2: 1 job(s); the last page" in second.out
    script = cluster.iris(*paged, "--json")
    assert [job["id"] for job in script.json] == [f"{USER}/paged-3", f"{USER}/paged-2"]
    assert script.err.startswith("page 1: ")
    assert "--page" not in cluster.iris("jobs", "--all", "--filter", "paged-").out


def test_a_running_job_is_listed_shown_and_explained_until_it_ends(cluster: Cluster) -> None:
    """`jobs`, `status`, `explain` and `host list` agree on what runs where; an ended job is only in
    the list of all.
    """
    cluster.submit(
        "shown",
        "--cpu",
        "1.5",
        "--memory",
        "2g",
        "--",
        "sh",
        "-c",
        f"touch shown.runs; {until('shown.go')}",
    )
    cluster.there_is("shown.runs")
    looks = [
        cluster.begin(*command, "--json")
        for command in (["jobs"], ["explain", "shown"], ["host", "list"])
    ]
    jobs, explained, hosts = (look.ends().json for look in looks)
    listed = next(job for job in jobs if job["id"] == f"{USER}/shown")
    keys = {
        "id",
        "run",
        "state",
        "user",
        "submitted_at",
        "priority",
        "tasks",
        "device",
        "parent",
        "reason",
    }
    assert set(listed) == keys | {"commit", "tags", "note", "cancelling"}
    assert listed["user"] == USER
    numbers = {
        "needed",
        "free",
        "hosts",
        "ahead",
        "ahead_first",
        "excluded",
        "group_needs",
        "group_has",
        "quotas",
    }
    hopes = {"scaling", "since"}
    facts = {
        "command",
        "resources",
        "priority",
        "env",
        "secrets",
        "image",
        "after",
        "from_checkpoint",
        "bundle",
        "page",
        "limits",
    }
    of_all = {
        "id",
        "state",
        "code",
        "message",
        "remedy",
        "attempts",
        "parent",
        "children",
        "commit",
        "tags",
        "note",
        "cancelling",
    }
    assert set(explained) == of_all | numbers | hopes | facts
    assert (explained["state"], explained["message"]) == (
        "RUNNING",
        f"runs on {cluster.only_host()}",
    )
    (host,) = hosts
    assert host["id"] == cluster.only_host()
    assert set(host) == {
        "id",
        "state",
        "reason",
        "slice",
        "resources",
        "free",
        "attributes",
        "running",
        "address",
    }
    assert (host["state"], host["reason"], host["resources"]["cpu"]) == ("READY", "", 4)
    assert host["resources"]["memory_bytes"] - host["free"]["memory_bytes"] == 2 * 2**30
    assert host["free"]["cpu"] == 2.5
    assert host["running"] == [f"{USER}/shown:0"]
    cluster.iris("priority", "shown", "production")
    eventually(lambda: cluster.status("shown")["priority"] == "production")
    assert "priority  production, submitted as interactive" in cluster.iris("explain", "shown").out
    cluster.file("shown.go").touch()
    cluster.iris("wait", "shown")
    live, all_jobs = (
        look.ends().out for look in (cluster.begin("jobs"), cluster.begin("jobs", "--all"))
    )
    assert "shown" not in live
    assert f"{USER}/shown" in all_jobs
    explained = cluster.iris("explain", "shown", "--json").json
    assert (explained["state"], explained["priority"]) == ("SUCCEEDED", "production")


def test_a_program_sees_who_it_is_and_nothing_of_its_agent(cluster: Cluster) -> None:
    """The IRIS_ variables of each task, the job's own, and none of the variables that the agent was
    started with. All tasks have one id without a slash, for tools that make directories of it.
    """
    cluster.submit(
        "environment", "--replicas", "2", "--env", "LR=0.1", "--env", "LANG=C.UTF-8", "--", "env"
    )
    cluster.iris("wait", "environment")
    host = cluster.only_host()  # which is a slice by itself
    uids = set()
    for index in (0, 1):
        seen = dict(
            line.split("=", 1) for line in cluster.logs("environment", "--task", str(index))
        )
        assert seen["IRIS_JOB_ID"] == f"{USER}/environment"
        assert seen["IRIS_TASK_ID"] == f"{USER}/environment:{index}"
        assert (seen["IRIS_TASK_INDEX"], seen["IRIS_NUM_TASKS"], seen["IRIS_ATTEMPT"]) == (
            str(index),
            "2",
            "1",
        )
        assert (seen["IRIS_CLUSTER"], seen["IRIS_HOST_ID"], seen["IRIS_SLICE_ID"]) == (
            "local",
            host,
            host,
        )
        assert (seen["LR"], seen["LANG"]) == ("0.1", "C.UTF-8")
        assert (seen["IRIS_USER"], seen["IRIS_STATE_DIR"]) == (USER, str(cluster.home))
        assert SECRET not in seen
        uids.add(seen["IRIS_JOB_UID"])
    (uid,) = uids
    assert uid.startswith(f"{USER}-environment-")


def test_a_job_starts_where_it_was_submitted_or_where_it_is_told_to(cluster: Cluster) -> None:
    """On this machine a job has the files of whoever submits it; `--workdir` says otherwise."""
    here = cluster.file("here")
    here.mkdir()
    asked = [
        cluster.begin("submit", "--", "pwd", cwd=here),
        cluster.begin("submit", "--workdir", str(cluster.home), "--", "pwd"),
    ]
    assert [command.ends().out.strip() for command in asked] == [str(here), str(cluster.home)]


def test_how_a_program_ended_is_the_exit_code_of_who_waited(cluster: Cluster) -> None:
    """125 for a job that failed by code, by signal or by its timeout, with the task's own code in
    its status.
    """
    ends = {
        "by-code": (["sh", "-c", "exit 7"], 7),
        "by-signal": (["sh", "-c", "kill -TERM $$"], 143),
        "by-rare-signal": (["sh", "-c", "kill -40 $$"], 168),
        "by-timeout": (["sleep", "1000"], 143),
    }
    started = {
        name: cluster.begin(
            "submit",
            "-n",
            name,
            *(["--timeout", "1s"] if name == "by-timeout" else []),
            "--",
            *command,
        )
        for name, (command, _) in ends.items()
    }
    for name, (_, exit_code) in ends.items():
        printed = started[name].ends(125).err
        (task,) = cluster.status(name)["tasks"]
        assert (task["state"], task["exit_code"]) == ("FAILED", exit_code)
        assert task["reason"] in printed


def test_a_cancelled_job_ends_its_program_and_says_so_to_who_waits(cluster: Cluster) -> None:
    """`cancel`: SIGTERM reaches the program, followers and waiters exit with 126, the job is KILLED
    with the reason given.
    """
    command = "trap 'touch told; exit 0' TERM; touch cancel.runs; while true; do sleep 0.05; done"
    attached = cluster.begin("submit", "-n", "to-cancel", "--", "sh", "-c", command)
    cluster.there_is("cancel.runs")
    waiting = cluster.begin("wait", "to-cancel")
    cluster.iris("cancel", "to-cancel", "--reason", "enough seen")
    assert "enough seen" in attached.ends(126).err
    waiting.ends(126)
    assert cluster.file("told").exists()
    status = cluster.status("to-cancel")
    assert (status["state"], status["reason"]) == ("KILLED", "enough seen")
    assert (
        cluster.iris("cancel", "to-cancel").out == f"{USER}/to-cancel has ended already (KILLED)\n"
    )


@pytest.mark.long
def test_many_jobs_are_cancelled_by_the_beginning_of_their_names_after_a_look_at_them(
    cluster: Cluster,
) -> None:
    """A sweep was wrong. Nothing else is cancelled, nothing without a yes, and what waits for the
    sweep does not start.
    """
    cluster.submit("sweep-1", "--cpu", "0.1", "--", "sleep", "1000")
    cluster.iris(
        "submit", "-q", "-n", "sweep-2", "--after-any", "sweep-1", "--", "touch", "sweep.started"
    )
    cluster.submit("other", "--cpu", "0.1", "--", "sleep", "1000")
    eventually(
        lambda: (
            cluster.iris("cancel", "--prefix", "sweep-", "--dry-run").out.count(f"\n{USER}/sweep-")
            == 2
        )
    )
    refused = cluster.iris("cancel", "--prefix", "sweep-", code=2)
    assert "Cancel 2 jobs? There is no terminal to confirm on; add --yes." in refused.err
    assert (
        "name jobs, or select them with --all, --prefix or --tag"
        in cluster.iris("cancel", "--all", "other", code=2).err
    )
    assert (
        "prefix: '' would select every job of a user"
        in cluster.iris("cancel", "--prefix", "", code=2).err
    )
    cancelled = cluster.iris("cancel", "--prefix", "sweep-", "--yes", "--reason", "wrong data").out

    assert (
        cancelled
        == f"cancelling {USER}/sweep-2 (grace period 30s)\ncancelling {USER}/sweep-1 (grace period"
        " 30s)\n"
    )
    cluster.iris("wait", "sweep-1", "sweep-2", code=126)
    assert {cluster.status(job)["reason"] for job in ("sweep-1", "sweep-2")} == {"wrong data"}
    assert not cluster.file("sweep.started").exists()
    assert cluster.status("other")["state"] in ("PENDING", "RUNNING")
    cluster.iris("cancel", "other")
    cluster.iris("wait", "other", code=126)


@pytest.mark.long
def test_a_job_whose_cancellation_takes_time_says_so(cluster: Cluster) -> None:
    """Else it looks as if the command had done nothing, for as long as the program saves its
    work.
    """
    program = f"trap 'touch farewell.told' TERM; touch farewell.runs; {until('farewell.go')}"
    cluster.submit("farewell", "--grace", "90s", "--", "sh", "-c", program)
    cluster.there_is("farewell.runs")
    assert (
        cluster.iris("cancel", "farewell").out
        == f"cancelling {USER}/farewell (grace period 1m 30s)\n"
    )
    cluster.there_is("farewell.told")
    status = cluster.status("farewell")
    why = f"cancelled by {USER}; programs that ignore SIGTERM get SIGKILL at about "
    assert (status["state"], status["cancelling"]["reason"]) == ("RUNNING", f"cancelled by {USER}")
    assert status["cancelling"]["since"] < status["cancelling"]["until"]
    assert status["reason"].startswith(why)
    for command in ("status", "explain"):
        shown = cluster.iris(command, "farewell").out
        assert f"{USER}/farewell  CANCELLING" in shown
        assert why in shown

    def listed(*options: str) -> bool:
        rows = cluster.iris("jobs", *options, "--json").json
        return [
            row["reason"].startswith(why)
            for row in rows
            if row["id"] == f"{USER}/farewell" and row["cancelling"]
        ] == [True]

    eventually(lambda: listed("--state", "running"))
    assert listed("--filter", "cancelling")
    (line,) = [line for line in cluster.iris("jobs").out.splitlines() if f"{USER}/farewell" in line]
    assert "CANCELLING" in line
    assert why in line
    cluster.file("farewell.go").touch()
    cluster.iris("wait", "farewell", code=126)


@pytest.mark.long
def test_the_newest_job_is_the_one_submitted_last_whichever_ended_last(cluster: Cluster) -> None:
    """The service lists ended jobs by their end, so with many of them the list had lost the newest
    ones.
    """
    cluster.submit("early", "--", "sh", "-c", until("early.go"))
    cluster.iris("submit", "-q", "-n", "late", "--", "true")
    cluster.iris("wait", "late")
    cluster.file("early.go").touch()
    cluster.iris("wait", "early")

    def newest(*options: str) -> list[str]:
        return [row["id"] for row in cluster.iris("jobs", "--json", *options).json]

    eventually(lambda: newest("--limit", "2") == [f"{USER}/late", f"{USER}/early"])
    assert (
        newest("--limit", "1") == newest("--limit", "1", "--state", "succeeded") == [f"{USER}/late"]
    )


@pytest.mark.long
def test_jobs_are_listed_by_state_user_and_time(cluster: Cluster) -> None:
    """Who has hundreds of jobs looks for some. Jobs that have ended are listed where a state is
    named.
    """
    for name, code in (("listed-good", 0), ("listed-bad", 3)):
        cluster.submit(
            name, "--priority", "batch", "--replicas", "2", "--", "sh", "-c", f"exit {code}"
        )
    cluster.iris("wait", "listed-good", "listed-bad", code=125)

    def listed(*options: str) -> set[str]:
        return {row["id"] for row in cluster.iris("jobs", *options, "--json").json} & {
            f"{USER}/listed-good",
            f"{USER}/listed-bad",
        }

    assert listed("--state", "failed") == {f"{USER}/listed-bad"}
    assert (
        listed("--state", "FAILED", "--state", "SUCCEEDED", "--user", USER, "--since", "1h")
        == listed()
    )
    assert (
        listed("--filter", "LISTED-b", "--all")
        == listed("--filter", "exit 3")
        == {f"{USER}/listed-bad"}
    )
    assert listed("--user", "nobody") == listed("--since", "0s") == set()
    assert f"{USER}/listed-bad" in cluster.iris("jobs", "--filter", "failed", "--limit", "1000").out
    (row,) = [
        row for row in cluster.iris("jobs", "--json").json if row["id"] == f"{USER}/listed-bad"
    ]
    assert "max_task_failures 0; task " in row["reason"]
    assert (row["state"], row["priority"], row["tasks"]) == ("FAILED", "batch", 2)
    assert '"o\'x"' in cluster.iris("jobs", "--user", "o'x", code=2).err
    cluster.iris("submit", "-q", "-n", "only", "--", "true", IRIS_USER="bob")
    cluster.iris("wait", "bob/only")
    assert (
        cluster.iris("jobs", "--user", "bob").out == "no live jobs; 1 has ended: iris jobs --all\n"
    )


@pytest.mark.long
def test_jobs_are_found_and_cancelled_by_their_tags(cluster: Cluster) -> None:
    """The names of a sweep's jobs say nothing about their parameters. Letters count as they are,
    also on the dev server.
    """
    sleep = ("--cpu", "0.1", "--", "sleep", "1000")
    cluster.iris(
        "submit",
        "-q",
        "-n",
        "tagged-a",
        "--tag",
        "sweep=lr",
        "--tag",
        "lr=3e-4",
        "--note",
        "first try",
        *sleep,
    )
    cluster.iris("submit", "-q", "-n", "tagged-b", "--tag", "sweep=lr", *sleep)
    cluster.iris("submit", "-q", "-n", "tagged-c", "--tag", "Sweep=LR", *sleep)

    def listed(*tags: str) -> set[str]:
        options = [word for tag in tags for word in ("--tag", tag)]
        return {
            row["id"].removeprefix(f"{USER}/tagged-")
            for row in cluster.iris("jobs", *options, "--json").json
        }

    assert eventually(lambda: len(listed("sweep=lr")) == 2 and len(listed("Sweep")) == 1)
    assert (
        listed("sweep"),
        listed("sweep=lr", "lr"),
        listed("sweep", "Sweep"),
        listed("other"),
    ) == (
        {"a", "b"},
        {"a"},
        set(),
        set(),
    )
    (row,) = cluster.iris("jobs", "--filter", "FIRST TRY", "--json").json
    assert (row["tags"], row["note"]) == ({"sweep": "lr", "lr": "3e-4"}, "first try")
    shown = cluster.status("tagged-a")
    assert (shown["tags"], shown["note"]) == (row["tags"], row["note"])
    for command in ("status", "explain"):
        assert (
            "tags      sweep=lr, lr=3e-4\nnote      first try\n"
            in cluster.iris(command, "tagged-a").out
        )
    assert (
        cluster.iris("cancel", "--tag", "sweep=lr", "--dry-run").out.count(f"\n{USER}/tagged-") == 2
    )
    cancelled = cluster.iris("cancel", "--tag", "sweep=lr", "--yes").out
    assert (
        cancelled
        == f"cancelling {USER}/tagged-b (grace period 30s)\ncancelling {USER}/tagged-a (grace"
        " period 30s)\n"
    )
    cluster.iris("cancel", "tagged-c")
    cluster.iris("wait", "tagged-a", "tagged-b", "tagged-c", code=126)
    cluster.iris("rerun", "tagged-a", "-n", "tagged-again")
    assert cluster.status("tagged-again")["tags"] == row["tags"]
    cluster.iris("cancel", "tagged-again")
    cluster.iris("wait", "tagged-again", code=126)


@pytest.mark.long
def test_a_list_of_jobs_says_why_they_wait_or_ended(cluster: Cluster) -> None:
    """`status` of each of twenty jobs is no way to find the one that asks for too much."""

    def reasons() -> dict[str, str]:
        return {
            row["id"].partition("/why-")[2]: row["reason"]
            for row in cluster.iris("jobs", "--filter", "why-", "--json").json
        }

    cluster.iris(
        "submit", "-n", "why-bad", "--", "sh", "-c", "echo ValueError: no data; exit 3", code=125
    )
    cluster.iris("submit", "-n", "why-good", "--", "true")
    for name, options in (
        ("big", ("--cpu", "999")),
        ("many", ("--cpu", "999", "--replicas", "2")),
        ("held", ("--cpu", "998")),
    ):
        cluster.submit(f"why-{name}", *options, "--", "true")
    cluster.iris("hold", "why-held", "--reason", "later")
    waits = {"big": "TOO_BIG", "many": "TOO_BIG", "held": f"held by {USER}: later"}
    eventually(
        lambda: reasons() == waits | {"bad": cluster.status("why-bad")["reason"], "good": ""}
    )

    assert "  TOO_BIG  " in cluster.iris("jobs", "--filter", "too_big").out
    cluster.iris("cancel", "why-big", "why-many", "why-held")
    eventually(lambda: reasons()["big"] == f"cancelled by {USER}")


@pytest.mark.long
def test_a_task_is_named_as_it_is_printed(cluster: Cluster) -> None:
    """Lists of hosts print `ada/zz9:1`, which is copied into the next command."""
    cluster.submit("zz9", "--replicas", "2", "--", "sh", "-c", until("zz9.go"))
    cluster.submit("qq8", "--", "true")
    (task,) = cluster.iris("status", "zz9:1", "--json").json["tasks"]
    assert task["index"] == 1
    assert "task 2;" in cluster.iris("status", "zz9:2", code=3).err
    refused = cluster.iris("hold", f"{USER}/zz9:1", code=5).err
    assert f"{USER}/zz9:1 is a task" in refused
    assert f"name {USER}/zz9" in refused
    assert "task 2;" in cluster.iris("cancel", "zz9:2", code=3).err
    assert (
        cluster.iris("cancel", f"{USER}/zz9:1").out
        == f"cancelling {USER}/zz9:1 (grace period 30s)\n"
    )
    eventually(lambda: cluster.status("zz9")["tasks"][1]["state"] == "CANCELLED")
    assert cluster.iris("cancel", "zz9:1").out == f"{USER}/zz9:1 has ended already (CANCELLED)\n"
    cluster.file("zz9.go").touch()
    assert f"{USER}/zz9 SUCCEEDED" in cluster.iris("wait", "zz9").err
    assert f"{USER}/qq8 SUCCEEDED" in cluster.iris("wait", "qq8:0").err
    hints = cluster.iris("--cluster", cluster.name, "submit", "-d", "--", "true").err
    assert f"  iris --cluster {cluster.name} status {USER}/job-" in hints


def test_a_host_is_shown_with_its_attributes_and_tasks(cluster: Cluster) -> None:
    """Constraints name attributes; the list has no room for them."""
    host = cluster.only_host()
    shown = cluster.iris("host", "show", host).out
    assert shown.startswith(f"{host}  READY\n")
    assert "  scale-group  local-cpu\n" in shown
    assert (
        cluster.iris("host", "show", host, "--json").json["attributes"]["scale-group"]
        == "local-cpu"
    )
    assert f"{host}x; did you mean {host}?" in cluster.iris("host", "show", f"{host}x", code=3).err


def test_a_wait_that_takes_too_long_ends_alone(cluster: Cluster) -> None:
    """Exit code 124, and the job goes on to its own end."""
    cluster.submit("slow", "--", "sh", "-c", until("slow.go"))
    assert "continues" in cluster.iris("wait", "slow", "--timeout", "500ms", code=124).err
    cluster.file("slow.go").touch()
    cluster.iris("wait", "slow")


def test_waiting_for_several_jobs_reports_the_worst_of_them(cluster: Cluster) -> None:
    """A failure weighs more than a success; one that was not found more than time that is over."""
    cluster.submit("wait-good", "--", "true")
    cluster.submit("wait-bad", "--", "false")
    ran = cluster.iris("wait", "wait-good", "wait-bad", "--json", code=125)
    assert {job["id"]: job["state"] for job in ran.json} == {
        f"{USER}/wait-good": "SUCCEEDED",
        f"{USER}/wait-bad": "FAILED",
    }


def test_ctrl_c_detaches_from_a_job_and_leaves_it_running(cluster: Cluster) -> None:
    """Exit code 130, how to come back on standard error, and the job goes on to its end."""
    attached = cluster.begin(
        "submit",
        "-n",
        "detached",
        "--",
        "sh",
        "-c",
        f"touch detached.runs; {until('detached.go')}; echo end",
    )
    cluster.there_is("detached.runs")
    attached.interrupt()
    said = attached.ends(130).err
    assert f"iris logs -f {USER}/detached" in said
    assert "continues" in said
    followed = cluster.begin("logs", "-f", "detached")
    cluster.file("detached.go").touch()
    assert followed.ends().out == "end\n"
    assert cluster.status("detached")["state"] == "SUCCEEDED"


@pytest.mark.long
def test_a_failed_program_is_tried_again_as_often_as_was_asked(cluster: Cluster) -> None:
    """`--max-retries`: each attempt has a number and logs of its own."""
    cluster.submit(
        "again",
        "--max-retries",
        "1",
        "--",
        "sh",
        "-c",
        "echo attempt $IRIS_ATTEMPT; [ $IRIS_ATTEMPT = 2 ]",
    )
    cluster.iris("wait", "again")
    (task,) = cluster.status("again")["tasks"]
    assert (task["state"], task["attempt"], task["exit_code"]) == ("SUCCEEDED", 2, 0)
    assert cluster.logs("again") == ["attempt 1", "attempt 2"]
    assert cluster.logs("again", "--attempt", "1") == ["attempt 1"]


def test_errors_are_json_too_when_json_was_asked_for(cluster: Cluster) -> None:
    """A program that reads `--json` finds the error's kind and exit code on standard error."""
    ran = cluster.iris("status", "nobody/knows", "--json", code=3)
    assert (json.loads(ran.err)["error"], json.loads(ran.err)["exit_code"]) == ("NotFound", 3)
    assert ran.out == ""


@pytest.mark.long
def test_temporals_own_tools_tell_what_a_job_is_and_why(cluster: Cluster) -> None:
    """Summary, details and search attributes: whoever has only the Web UI sees state, reason,
    numbers, and where the logs are.
    """
    waits = cluster.submit("seen", "--cpu", "64", "--", "echo", "never")["workflow_id"]
    described = cluster.temporal("workflow", "describe", "-w", waits)
    assert described["executionConfig"]["userMetadata"]["summary"] == "echo never"
    (metadata,) = cluster.temporal("workflow", "metadata", "-w", waits)["queryResult"]
    for words in ("**PENDING**", "needs 64 cpu", "has 4 cpu", f"iris logs {USER}/seen"):
        assert words in metadata["currentDetails"]
    found = [
        f"IrisKind = 'job' AND IrisUser = '{USER}' AND IrisState = 'PENDING'",
        "IrisCluster = 'local' AND IrisKind = 'slice'",
    ]
    pending, slices = (cluster.temporal("workflow", "list", "--query", query) for query in found)
    assert waits in [entry["execution"]["workflowId"] for entry in pending]
    assert [entry["execution"]["workflowId"] for entry in slices] == [
        f"local/slice/{cluster.only_host()}"
    ]
    page = (Path(__file__).parents[3] / "docs" / "web-ui.md").read_text()
    views = dict(re.findall(r"^\| (.+) \| `(IrisKind .+)` \|$", page, re.MULTILINE))
    listed = {
        view: cluster.temporal("workflow", "list", "--query", query)
        for view, query in views.items()
    }
    assert waits in [entry["execution"]["workflowId"] for entry in listed["jobs that wait"]]
    assert [entry["execution"]["workflowId"] for entry in listed["machines"]] == [
        f"local/slice/{cluster.only_host()}"
    ]
    cluster.iris("cancel", "seen")
    cluster.iris("wait", "seen", code=126)
    (closed,) = cluster.temporal(
        "workflow", "list", "--query", f"WorkflowId = '{waits}' AND IrisState = 'KILLED'"
    )
    assert closed["status"] == "WORKFLOW_EXECUTION_STATUS_CANCELED"


def test_a_name_in_use_is_refused_until_its_job_has_ended(cluster: Cluster) -> None:
    """Exit code 5 and which job it is; afterwards the name is free, and the new job has logs and
    status of its own.
    """
    cluster.submit("taken", "--", "sh", "-c", f"echo first; {until('taken.go')}")
    assert f"job {USER}/taken" in cluster.iris("submit", "-n", "taken", "--", "true", code=5).err
    cluster.file("taken.go").touch()
    cluster.iris("wait", "taken")
    assert cluster.iris("submit", "-n", "taken", "--", "echo", "second").out == "second\n"
    assert cluster.logs("taken") == ["second"]


@pytest.mark.long
def test_an_earlier_run_of_a_name_is_listed_shown_and_read_by_its_number(cluster: Cluster) -> None:
    """Lists had three jobs alike, and only the latest could be looked at: the one that had failed
    could not.
    """
    program = "echo one > $IRIS_OUTPUT_DIR/of-one; sleep 0.1; echo ValueError: one; exit 3"
    cluster.iris("submit", "-n", "reused", "--", "sh", "-c", program, code=125)
    cluster.iris("submit", "-n", "reused", "--", "echo", "two")
    eventually(lambda: _rows(cluster, "reused") == [(None, "SUCCEEDED"), (1, "FAILED")])

    assert f"{USER}/reused#1 " in cluster.iris("jobs", "--all", "--limit", "1000").out
    reason = cluster.status("reused#1")["reason"]
    assert reason.endswith("code 3: ValueError: one")
    assert cluster.status("reused#2") | {"page": ""} == cluster.status("reused") | {"page": ""}
    assert cluster.iris("explain", "reused#1", "--json").json["attempts"][0]["reason"] == reason
    assert [cluster.logs("reused#1"), cluster.logs("reused#1:0"), cluster.logs("reused")] == [
        ["ValueError: one"]
    ] * 2 + [["two"]]
    cluster.iris("wait", "reused")
    assert cluster.iris("cancel", "reused#1").out == f"{USER}/reused#1 has ended already (FAILED)\n"
    assert "FAILED" in cluster.iris("exec", "reused#1", "--", "true", code=5).err
    assert cluster.iris("fetch", "reused#1", "--list").out.endswith(" 4 B  of-one\n")
    assert (
        "names one run; this command acts on the latest run"
        in cluster.iris("hold", "reused#1", code=2).err
    )
    began, ended = (
        datetime.fromisoformat(cluster.status("reused#1")[key])
        for key in ("started_at", "finished_at")
    )
    assert ended - began >= timedelta(seconds=0.1)
    assert "run 3;" in cluster.iris("status", "reused#3", code=3).err
    assert f"did you mean {USER}/reused?" in cluster.iris("logs", "reuseds#1", code=3).err
    for wrong in ("reused#", "reused#0", "reused#x", "reused#1#2"):
        assert "does not name a run" in cluster.iris("status", wrong, code=2).err


def _rows(cluster: Cluster, name: str) -> list[tuple[int | None, str]]:
    jobs = cluster.iris("jobs", "--json", "--limit", "1000").json
    return [(job["run"], job["state"]) for job in jobs if job["id"] == f"{USER}/{name}"]


def test_an_unknown_job_is_answered_with_similar_names(cluster: Cluster) -> None:
    """Exit code 3, whatever was asked of it."""
    cluster.iris("submit", "-n", "training-run", "--", "true")
    for asked in [
        cluster.begin(command, "traning-run")
        for command in ("status", "explain", "logs", "wait", "cancel", "rerun")
    ]:
        assert f"did you mean {USER}/training-run?" in asked.ends(3).err


def test_an_address_finds_the_cluster_behind_it(cluster: Cluster) -> None:
    """`--cluster HOST:PORT`, `HOST:PORT/NAME` and IRIS_CLUSTER, from a machine that knows nothing
    else of the cluster than its key.
    """
    with a_home() as home:
        elsewhere = Cluster(home)
        look = ("host", "list", "--json")
        key = {"IRIS_MESSAGE_KEY": str(cluster.home / "clusters" / cluster.name / "message.key")}
        refused = elsewhere.begin("--cluster", cluster.address, *look)
        by_address = elsewhere.begin("--cluster", cluster.address, *look, **key)
        by_name = elsewhere.begin(*look, IRIS_CLUSTER=f"{cluster.address}/{cluster.name}", **key)
        assert "IRIS_MESSAGE_KEY=FILE" in refused.ends(5).err
        assert [[host["id"] for host in asked.ends().json] for asked in (by_address, by_name)] == [
            [cluster.only_host()]
        ] * 2
        assert (
            "there are: local"
            in elsewhere.iris("--cluster", f"{cluster.address}/other", "jobs", code=3).err
        )


def test_open_prints_the_page_of_a_job_where_there_is_no_browser(cluster: Cluster) -> None:
    """On a machine that is reached by SSH, the link is what its user can click."""
    page = cluster.submit("opened", "--", "true")["ui"]
    assert cluster.iris("open", "opened", DISPLAY="", WAYLAND_DISPLAY="").out == f"{page}\n"
    assert (
        f"{USER}/never-submitted" in cluster.iris("open", "--print", "never-submitted", code=3).err
    )
