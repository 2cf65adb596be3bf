"""Ctrl-C between the acceptance of a job and its end: the user learns its name, whatever the
command was doing.
"""

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from tests.e2e.cluster import USER, Cluster, eventually
from tests.e2e.jobs.held_answers import held_answers

pytestmark = pytest.mark.long


@contextmanager
def no_control_plane(cluster: Cluster) -> Iterator[None]:
    """The control plane sleeps meanwhile: questions about hosts are not answered."""
    control = psutil.Process(cluster.pid("controller", "serve"))
    control.suspend()
    try:
        yield
    finally:
        control.resume()


def is_accepted(cluster: Cluster, job: str) -> bool:
    """Whether the service has the job, whoever knows it."""
    return bool(
        cluster.temporal(
            "workflow", "list", "--query", f"WorkflowId = '{cluster.name}/job/{USER}/{job}'"
        )
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_command_that_ends_right_after_the_acceptance_names_its_job(
    cluster: Cluster, number: signal.Signals
) -> None:
    """It waited two seconds for a warning before its first line, and Ctrl-C in that time left a job
    without a name.
    """
    job = f"no-warning-{number.name.lower()}"
    with no_control_plane(cluster):
        submit = cluster.begin("submit", "-n", job, "--no-workspace", "--", "true")
        eventually(lambda: is_accepted(cluster, job))
        submit.process.send_signal(number)
        said = submit.ends(130).err
    # On a busy machine, the signal comes before the command has read the answer of the service.
    first, second, *_ = said.splitlines()
    named = second if "waiting for the service's answer" in first else first
    assert named == f"submitted {USER}/{job}"
    assert f"detached; {USER}/{job} continues\n  iris logs -f {USER}/{job}\n" in said
    cluster.iris("wait", job)


def test_a_quiet_submit_prints_the_id_before_it_waits_for_a_warning(cluster: Cluster) -> None:
    """A script that is interrupted has read the id."""
    with no_control_plane(cluster):
        submit = cluster.begin("submit", "-q", "-n", "quiet-first", "--no-workspace", "--", "true")
        eventually(lambda: submit.out == f"{USER}/quiet-first\n", every=0.02)
        submit.interrupt()
        assert f"iris status {USER}/quiet-first" in submit.ends(130).err
    cluster.iris("wait", "quiet-first")


COMMANDS = {
    "submit": ("submit", "-n", "held-back", "--no-workspace", "--", "true"),
    "job file": ("submit", "-f", "held.yaml", "--no-workspace"),
    "batch": ("submit", "--batch", "held.txt", "--no-workspace"),
    "rerun": ("rerun", "before", "-n", "held-back"),
}


@pytest.mark.parametrize(
    "command",
    ["submit", "batch", "job file", "rerun"],
)
def test_ctrl_c_during_the_submission_waits_for_the_answer(cluster: Cluster, command: str) -> None:
    """The service may have accepted the job, which then runs: the command must know before it
    ends.
    """
    if command == "rerun":
        cluster.iris("submit", "-n", "before", "--no-workspace", "--", "true")
    cluster.file("held.yaml").write_text(
        "name: held-first\ncommand: 'true'\n---\nname: held-back\ncommand: 'true'\n"
    )
    cluster.file("held.txt").write_text("-n held-first -- true\n-n held-back -- true\n")
    with held_answers(cluster.address, f"/job/{USER}/held-back") as held:
        submit = cluster.begin("--cluster", held.address, *COMMANDS[command])
        eventually(lambda: held.holds, every=0.02)
        submit.interrupt()
        eventually(lambda: "waiting for the service's answer" in submit.err, every=0.02)
        held.release()
        said = submit.ends(130).err
    assert f"submitted {USER}/held-back\n" in said
    assert command not in ("job file", "batch") or "2 of 2 jobs were submitted" in said
    cluster.iris("wait", "held-back")


def test_a_second_ctrl_c_does_not_wait_and_says_how_to_find_out(cluster: Cluster) -> None:
    """A service that never answers must not keep the terminal."""
    with held_answers(cluster.address, f"/job/{USER}/twice") as held:
        submit = cluster.begin(
            "--cluster", held.address, *("submit", "-n", "twice", "--no-workspace", "--", "true")
        )
        eventually(lambda: held.holds and is_accepted(cluster, "twice"))
        submit.interrupt()
        eventually(lambda: "waiting for the service's answer" in submit.err, every=0.02)
        submit.interrupt()
        said = submit.ends(130).err
        asked = f"iris --cluster {held.address} status {USER}/twice"
    assert (
        f"job {USER}/twice may have been accepted: the service did not answer; to find out, run:"
        f" {asked}\n" in said
    )
    cluster.iris("wait", "twice")


def test_a_second_ctrl_c_does_not_count_the_job_without_an_answer(cluster: Cluster) -> None:
    """The same job "may have been accepted" and "was not submitted": these contradict each
    other.
    """
    cluster.file("held.yaml").write_text(
        "name: first\ncommand: 'true'\n---\nname: held-back\ncommand: 'true'\n"
    )
    with held_answers(cluster.address, f"/job/{USER}/held-back") as held:
        submit = cluster.begin("--cluster", held.address, *COMMANDS["job file"])
        eventually(lambda: held.holds and is_accepted(cluster, "held-back"), every=0.02)
        submit.interrupt()
        eventually(lambda: "waiting for the service's answer" in submit.err, every=0.02)
        submit.interrupt()
        said = submit.ends(130).err
    assert "at least 1 of 2 jobs were submitted" in said
    assert "was not" not in said
    cluster.iris("wait", "held-back")


@pytest.mark.parametrize(
    "command",
    ["batch", "job file", "rerun", "schedule"],
)
def test_sigterm_ends_every_submission_as_ctrl_c_does(cluster: Cluster, command: str) -> None:
    """It ended all but the submission of one job at once, without the names of what the service had
    accepted.
    """
    cluster.iris("submit", "-n", "before", "--no-workspace", "--", "true")
    cluster.file("held.yaml").write_text(
        "name: first\ncommand: 'true'\n---\nname: held-back\ncommand: 'true'\n"
    )
    cluster.file("held.txt").write_text("-n first -- true\n-n held-back -- true\n")
    schedule = (
        "schedule",
        "create",
        "-n",
        "held-back",
        "--every",
        "6h",
        "--no-workspace",
        "--",
        "true",
    )
    with held_answers(cluster.address, "held-back") as held:
        key = ("--batch-key", "sigterm") if command == "batch" else ()
        arguments = {**COMMANDS, "schedule": schedule}[command]
        submit = cluster.begin("--cluster", held.address, *arguments, *key)
        eventually(lambda: held.holds, every=0.02)
        submit.process.send_signal(signal.SIGTERM)
        eventually(lambda: "waiting for the service's answer" in submit.err, every=0.02)
        held.release()
        said = submit.ends(130)
    if command == "schedule":
        assert f"schedule {USER}/held-back: every 6h\n" in said.out
        cluster.iris("schedule", "delete", "held-back")
    else:
        assert f"submitted {USER}/held-back\n" in said.err
        cluster.iris("wait", "held-back")


def test_a_schedule_whose_creation_is_interrupted_is_named(cluster: Cluster) -> None:
    """Otherwise it starts jobs that nobody expects."""
    create = (
        "schedule",
        "create",
        "-n",
        "held-schedule",
        "--every",
        "6h",
        "--no-workspace",
        "--",
        "true",
    )
    with held_answers(cluster.address, "held-schedule") as held:
        creating = cluster.begin("--cluster", held.address, *create)
        eventually(lambda: held.holds, every=0.02)
        creating.interrupt()
        eventually(lambda: "waiting for the service's answer" in creating.err, every=0.02)
        held.release()
        assert f"schedule {USER}/held-schedule: every 6h\n" in creating.ends(130).out
    cluster.iris("schedule", "delete", "held-schedule")


def test_a_submission_with_json_prints_the_job_although_it_is_interrupted(cluster: Cluster) -> None:
    """Programs read standard output."""
    with held_answers(cluster.address, f"/job/{USER}/held-json") as held:
        submit = cluster.begin(
            "--cluster",
            held.address,
            *("submit", "--json", "-n", "held-json", "--no-workspace", "--", "true"),
        )
        eventually(lambda: held.holds, every=0.02)
        submit.interrupt()
        eventually(lambda: "waiting for the service's answer" in submit.err, every=0.02)
        held.release()
        assert json.loads(submit.ends(130).out)["id"] == f"{USER}/held-json"
    cluster.iris("wait", "held-json")
