"""Users give jobs their own secrets: child jobs, schedules, reruns, retries, arrays, batches, job
files, pools and rotations.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import iris
from tests.e2e.cluster import Cluster, a_home, eventually
from tests.e2e.python.test_python import client, state
from tests.searches import files_of

__all__ = ["client", "state"]

pytestmark = pytest.mark.long

TOKEN = "hunter2-of-a-user"
#: Prints a word and the length of the token, which no mask hides.
SHOW = ("sh", "-c", "echo $0 ${#TOKEN}")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with a_home() as home:
        cluster = Cluster(home, options=("--cpu", "4", "--memory", "8g", "--hosts", "1"))
        try:
            cluster.iris(
                "cluster", "start", "--local", "-d", "--name", "local", *cluster.options, within=240
            )
            yield cluster
        finally:
            try:
                cluster.iris("cluster", "stop", "local", "--yes", code=None)
            finally:
                cluster.clear()


def sealed(cluster: Cluster) -> list[str]:
    """The jobs, schedules and users whose secrets are in the store."""
    found = [
        path.relative_to(folder).parent
        for folder in cluster.home.rglob("sealed/local")
        for path in files_of(folder)
    ]
    return sorted(map(str, found))


def has_succeeded(cluster: Cluster, schedule: str, times: int) -> bool:
    """Whether so many runs of the schedule have succeeded."""
    runs = cluster.iris("schedule", "show", schedule, "--json").json["runs"]
    return [run["state"] for run in runs] == ["SUCCEEDED"] * times


def test_child_jobs_get_the_secrets_of_their_parent_and_their_own(cluster: Cluster) -> None:
    """Also a child that outlives its parent, whose secrets stay for it; and a parent that has
    removed its variable.
    """
    script = cluster.file("parent.sh")
    script.write_text(
        "set -e\niris submit -n one -- sh -c 'echo one ${#TOKEN}'\nOWN=hunter2-of-a-child iris"
        " submit -n two --secret OWN -- sh -c 'echo two ${#TOKEN} ${#OWN} $OWN'\nunset"
        f" TOKEN\niris submit -d -n three -- sh -c 'until [ -e {cluster.file('go')} ]; do sleep"
        " 0.1; done; echo three ${#TOKEN}'\n"
    )
    options = ("-n", "parent", "--secret", "TOKEN", "--workdir", str(cluster.work))
    cluster.iris("submit", *options, "--", "sh", str(script), within=120, TOKEN=TOKEN)
    assert sealed(cluster) == ["job/ada/parent"]
    cluster.file("go").touch()
    cluster.iris("wait", "ada/parent/three")

    said = [cluster.logs(f"ada/parent/{name}")[-1] for name in ("one", "two", "three")]
    assert said == [
        f"one {len(TOKEN)}",
        f"two {len(TOKEN)} {len('hunter2-of-a-child')} ***",
        f"three {len(TOKEN)}",
    ]


def test_the_secret_of_a_schedule_lives_as_long_as_the_schedule(cluster: Cluster) -> None:
    """Each run has it, and a rerun of one under the schedule's name; a job of another name has
    not.
    """
    asked = ("--secret", "TOKEN", "--", *SHOW, "run")
    cluster.iris(
        "schedule", "create", "-n", "nightly", "--every", "12h", "--paused", *asked, TOKEN=TOKEN
    )
    again = cluster.iris(
        "schedule", "create", "-n", "nightly", "--every", "12h", *asked, code=5, TOKEN=TOKEN
    )
    assert "already exists" in again.err
    for number in (1, 2):
        cluster.iris("schedule", "trigger", "nightly")
        eventually(partial(has_succeeded, cluster, "nightly", number))
        assert cluster.logs("nightly") == [f"run {len(TOKEN)}"]
    cluster.iris("rerun", "nightly")
    cluster.iris("wait", "nightly")
    refused = cluster.iris("rerun", "nightly", "-n", "daily", code=5)

    assert "ada/nightly" in refused.err
    assert "TOKEN" in refused.err
    assert "schedule/ada/nightly" in sealed(cluster)
    cluster.iris("schedule", "delete", "nightly")
    assert "schedule/ada/nightly" not in sealed(cluster)


def test_a_job_that_ended_has_no_secret_left_and_is_run_again_with_a_new_one(
    cluster: Cluster,
) -> None:
    """The error names the secret and the command. A retry within the job still has it."""
    retried = ("sh", "-c", "echo $IRIS_ATTEMPT ${#TOKEN}; [ $IRIS_ATTEMPT = 2 ]")
    cluster.iris(
        "submit",
        "-n",
        "again",
        "--secret",
        "TOKEN",
        "--max-retries",
        "1",
        "--",
        *retried,
        TOKEN=TOKEN,
    )
    assert cluster.logs("again")[-1] == f"2 {len(TOKEN)}"
    assert "job/ada/again" not in sealed(cluster)
    gone = cluster.iris("rerun", "again", code=5)
    assert "iris rerun --secret TOKEN ada/again" in gone.err
    other = cluster.iris("rerun", "again", "-n", "anew", code=5)
    assert "iris rerun -n anew --secret TOKEN ada/again" in other.err
    assert "TOKEN" in cluster.iris("rerun", "again", "--secret", "TOKEN", code=2).err
    cluster.iris("rerun", "again", "-n", "anew", "--secret", "TOKEN", TOKEN="another-token")
    cluster.iris("wait", "anew", code=None)
    assert cluster.logs("anew")[-1] == f"2 {len('another-token')}"

    cluster.iris(
        "submit", "-d", "-n", "cancelled", "--secret", "TOKEN", "--", "sleep", "600", TOKEN=TOKEN
    )
    assert "job/ada/cancelled" in sealed(cluster)
    taken = cluster.iris(
        "submit", "-n", "cancelled", "--secret", "TOKEN", "--", "true", code=5, TOKEN=TOKEN
    )
    assert "already exists" in taken.err
    assert sealed(cluster).count("job/ada/cancelled") == 1
    cluster.iris("cancel", "cancelled")
    cluster.iris("wait", "cancelled", code=126)
    assert "job/ada/cancelled" not in sealed(cluster)


def test_arrays_batches_job_files_and_dry_runs_take_secrets(cluster: Cluster) -> None:
    """Every way to submit a job; what is missing is said before anything is sent."""
    cluster.iris(
        "submit",
        "-n",
        "sweep",
        "--array",
        "0-2",
        "--secret",
        "TOKEN",
        "--",
        *SHOW,
        "task",
        TOKEN=TOKEN,
    )
    assert [line.rpartition("task ")[2] for line in cluster.logs("sweep")] == [str(len(TOKEN))] * 3
    cluster.file("lines").write_text(
        "-n first -- sh -c 'echo ${#TOKEN}'\n-n second -- sh -c 'echo ${#TOKEN}'\n"
    )
    cluster.iris("submit", "--secret", "TOKEN", "--batch", str(cluster.file("lines")), TOKEN=TOKEN)
    cluster.iris("wait", "first", "second")
    assert cluster.logs("first") + cluster.logs("second") == [str(len(TOKEN))] * 2
    cluster.file("job.yaml").write_text(
        "name: filed\nsecret: [TOKEN, KEY=file:key]\ncommand: echo ${#TOKEN} ${#KEY}\n"
    )
    cluster.file("key").write_text("hunter2\n")
    cluster.iris("submit", "-f", "job.yaml", cwd=cluster.work, TOKEN=TOKEN)
    assert cluster.logs("filed") == [f"{len(TOKEN)} 7"]
    cluster.iris("job", "check", str(cluster.file("job.yaml")))
    assert (
        "KEY=file:key"
        in cluster.iris("submit", "-f", str(cluster.file("job.yaml")), "--print-yaml").out
    )

    for arguments in (
        ("--dry-run", "--secret", "NONE", "--", "true"),
        ("--secret", "NONE", "--batch", str(cluster.file("lines"))),
    ):
        assert "variable NONE" in cluster.iris("submit", "--secret", "NONE", *arguments, code=2).err
    assert [
        each for each in sealed(cluster) if each.endswith(("sweep", "first", "second", "filed"))
    ] == []


def test_named_secrets_are_given_on_standard_input_and_a_rotation_changes_nothing_for_jobs(
    cluster: Cluster,
) -> None:
    """No process restarts; a job that was submitted before the rotation starts after it."""
    set_it = [sys.executable, "-m", "iris.cli.main", "secret", "set", "TOKEN"]
    environment = {**os.environ, "IRIS_STATE_DIR": str(cluster.home), "IRIS_USER": "ada"}
    subprocess.run(set_it, input=f"{TOKEN}\n".encode(), env=environment, check=True)
    listed = cluster.iris("secret", "list", "--json")
    assert [(each["name"], each["by"]) for each in listed.json] == [("TOKEN", "ada")]
    assert TOKEN not in listed.out
    in_line = cluster.iris("secret", "set", "TOKEN", TOKEN, code=2)
    assert "a value in the command line is in the history of your shell" in in_line.err
    assert TOKEN not in in_line.err
    wait = (
        f"until [ -e {cluster.file('rotated')} ]; do sleep 0.1; done; [ $IRIS_ATTEMPT = 2 ] && echo"
        " ${#TOKEN} ${#OWN}"
    )
    options = ("-n", "before", "--secret", "TOKEN", "--secret", "OWN", "--max-retries", "1")
    cluster.iris("submit", "-d", *options, "--", "sh", "-c", wait, OWN="hunter2-own")
    eventually(lambda: cluster.status("before")["state"] == "RUNNING")

    assert cluster.iris("secret", "rotate", "--json").json["sealed_again"] >= 2
    cluster.iris("secret", "rotate")
    cluster.file("rotated").touch()
    cluster.iris("wait", "before")
    assert cluster.logs("before")[-1] == f"{len(TOKEN)} {len('hunter2-own')}"
    cluster.iris("submit", "-n", "after", "--secret", "TOKEN", "--", *SHOW, "after")
    assert cluster.logs("after") == [f"after {len(TOKEN)}"]
    cluster.iris("secret", "rm", "TOKEN")
    failed = cluster.iris("rerun", "after")
    assert failed.code == 0
    reason = cluster.iris("wait", "after", code=125)
    assert "secret TOKEN (the secret TOKEN of ada) cannot be used" in reason.err


def length(name: str) -> int:
    return len(os.environ[name])


def test_python_programs_give_secrets_by_name(
    client: iris.IrisClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Functions and pools; the same errors and warnings as in a shell, before anything is sent."""
    monkeypatch.setenv("TOKEN", TOKEN)
    (tmp_path / "key").write_text("hunter2\n")
    job = client.submit(length, "TOKEN", secret=["TOKEN"])
    assert job.result() == len(TOKEN)
    assert client.submit(length, "KEY", secret={"KEY": f"file:{tmp_path / 'key'}"}).result() == 7
    with iris.WorkerPool(client, 1, secret=["TOKEN"]) as pool:
        assert pool.submit(length, "TOKEN").result() == len(TOKEN)

    client.secrets.set("NAMED", "a named value")
    assert [each.name for each in client.secrets.list()] == ["NAMED"]
    assert client.submit(length, "NAMED", secret=["NAMED"]).result() == len("a named value")
    client.secrets.set("TOKEN", "another")
    with pytest.warns(UserWarning, match="TOKEN=secret:TOKEN"):
        client.submit(length, "TOKEN", secret=["TOKEN"]).result()
    with pytest.raises(iris.Rejected, match="TOKEN"):
        job.rerun()
    again = job.rerun(secret=["TOKEN"])
    assert again is not None
    assert again.result() == len(TOKEN)
    for wrong in ({"TOKEN": TOKEN}, [f"TOKEN={TOKEN}"], TOKEN):
        with pytest.raises(iris.Rejected, match="secret") as refused:
            client.submit(length, "TOKEN", secret=wrong)  # type: ignore[arg-type, unused-ignore]
        assert TOKEN not in str(refused.value)
