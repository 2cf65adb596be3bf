"""What is wrong is said in a sentence with the right exit code; nothing hangs, and nobody sees a
traceback (`Running.ends`).
"""

import pytest

from tests.e2e.cluster import Cluster, a_home

# each refusal end to end; tests of the command line and of programs try most of them by themselves
pytestmark = pytest.mark.long


def test_without_a_cluster_every_command_says_how_to_start_one() -> None:
    """Exit code 4."""
    with a_home() as home:
        nowhere = Cluster(home)
        commands = (
            ["submit", "--", "true"],
            ["jobs"],
            ["logs", "train"],
            ["host", "list"],
            ["cluster", "status"],
        )
        for asked in [nowhere.begin(*command) for command in commands]:
            assert "iris cluster start --local" in asked.ends(4).err


def test_an_address_where_nobody_answers_is_unreachable(cluster: Cluster) -> None:
    """Exit code 4 for a closed port, and for one that cannot be."""
    for address in ("127.0.0.1:1", "localhost:99999", "no.such.host.invalid:7233"):
        assert address in cluster.iris("--cluster", address, "jobs", code=4).err


#: Jobs that cannot even be submitted: arguments, exit code, and what is said.
REFUSED = {
    "empty-command": (["--", ""], 2, "command: '' is empty"),
    "memory-that-is-none": (["--memory", "8x", "--", "true"], 2, "memory: '8x' is not a size"),
    "negative-cpu": (["--cpu", "-1", "--", "true"], 2, "cpu: '-1' is out of range"),
    "name-that-is-none": (["-n", "a b", "--", "true"], 2, "name: 'a b' is not a valid name"),
    "iris-own-variable": (["--env", "IRIS_JOB_ID=x", "--", "true"], 2, "is set by Iris itself"),
    "two-megabytes-of-environment": (
        [word for index in range(16) for word in ("--env", f"V{index}={'x' * 120_000}")]
        + ["--", "true"],
        2,
        "makes the job larger than 65,536 bytes",
    ),
    "argument-that-is-no-text": (["--", "echo", "\udcff"], 2, "is not UTF-8"),
}


def test_a_job_that_cannot_be_is_refused_before_it_exists(cluster: Cluster) -> None:
    """Wrong usage exits with 2, and there is no such job afterwards."""
    before = len(cluster.iris("jobs", "--all", "--limit", "1000").out.splitlines())
    asked = {
        case: cluster.begin("submit", *arguments) for case, (arguments, _, _) in REFUSED.items()
    }
    for case, (_, code, words) in REFUSED.items():
        assert words in asked[case].ends(code).err, case
    assert len(cluster.iris("jobs", "--all", "--limit", "1000").out.splitlines()) == before


#: Programs that cannot be started: options and command, the task's exit code, and its reason.
UNSTARTABLE = {
    "no-such-program": (
        ["--", "no-such-program"],
        127,
        "there is no program 'no-such-program' on this host",
    ),
    "not-executable": (["--", "/etc/passwd"], 126, "'/etc/passwd' is not executable"),
    "no-such-workdir": (
        ["--workdir", "/nowhere", "--", "true"],
        126,
        "the working directory '/nowhere' does not exist",
    ),
    "impossible-workdir": (
        ["--workdir", "/" + "x" * 300, "--", "true"],
        126,
        "the working directory cannot be used",
    ),
}


def test_a_program_that_cannot_be_started_fails_its_job_with_the_shells_code(
    cluster: Cluster,
) -> None:
    """127 for one that is not there, 126 for one that may not run; reason in the status, and in the
    logs too.
    """
    asked = {
        case: cluster.begin("submit", "-n", case, *arguments)
        for case, (arguments, _, _) in UNSTARTABLE.items()
    }
    for case, (_, exit_code, reason) in UNSTARTABLE.items():
        ran = asked[case].ends(125)
        assert reason in ran.err
        assert reason in ran.out
        (task,) = cluster.status(case)["tasks"]
        assert (task["state"], task["exit_code"]) == ("FAILED", exit_code)
        assert reason in task["reason"]
