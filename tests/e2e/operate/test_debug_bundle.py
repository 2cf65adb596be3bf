"""`iris debug bundle` on real clusters: what an archive has, also of a cluster in trouble, and that no
secret is in it.
"""

import json
import os
import signal
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cluster import USER, Cluster, a_cluster, eventually

pytestmark = pytest.mark.long

#: A value for each place that can hold a secret. All have one part in common, for which the test
#: searches: nothing else in the cluster has it.
COMMON = "opensesame"
IN_CONFIG = f"of-the-configuration-{COMMON}"
IN_JOB = f'of "the" job {COMMON}'
IN_COMMAND = f"--word={COMMON}-of-the-command"
IN_PROGRAM = f"/nowhere/{COMMON}"
IN_SHELL = f"of-the-shell-{COMMON}"
WEBHOOK = f"http://127.0.0.1:9/services/{COMMON}/hook?key={COMMON}"
#: Lines of a log that nothing in Iris writes so: what libraries and programs may print.
LOGGED = f"""\
the program's environment: {{'X': {IN_JOB!r}}}
WANDB_API_KEY={COMMON}-of-a-forgotten-job
pull of https://_json_key:{COMMON}@registry.example/image failed
calling https://chat.example/services/{COMMON} failed: timeout
Authorization: Bearer {COMMON}.of.a.header
-----BEGIN OPENSSH PRIVATE KEY-----
{COMMON}
-----END OPENSSH PRIVATE KEY-----
"""
CONFIG = f"""
name: local
platform: {{local: {{}}}}
bootstrap:
  env_vars: {{HARMLESS: {IN_CONFIG}}}  # never put {COMMON} into a comment either
scale_groups:
  cpu: {{type: local_vm, min_slices: 1, resources: {{cpu: 4, memory: 8g, disk: 8g}}}}
"""


def bundle(cluster: Cluster, name: str, *options: str, **env: str) -> tuple[dict[str, str], Any]:
    """The files of a new bundle by their names, and the JSON that the command printed."""
    file = cluster.file(name)
    said = cluster.iris("debug", "bundle", "-o", str(file), "--json", *options, **env).json
    with tarfile.open(file) as archive:
        opened = {member.name.partition("/")[2]: archive.extractfile(member) for member in archive}
        found = {key: each.read().decode() for key, each in opened.items() if each is not None}
    assert {*said["files"]} == {*found}
    return found, said


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with secrets in all places that can hold one, and a job that failed with them."""
    config = tmp_path_factory.mktemp("config") / "cluster.yaml"
    config.write_text(CONFIG)
    with a_cluster("--config", str(config)) as cluster:
        options = ("--env", f"X={IN_JOB}", "--secret", "TOKEN=env:TOKEN", "--notify", WEBHOOK)
        told = ("--note", f"see {COMMON}", "--tag", f"key={COMMON}")
        cluster.iris(
            *("submit", "-n", "bad", *options, *told, "--", "sh", "-c", "exit 3", IN_COMMAND),
            code=125,
            TOKEN=IN_SHELL,
        )
        cluster.iris("submit", "-n", "absent", "--", IN_PROGRAM, code=None)
        with (cluster.home / "clusters" / "local" / "logs" / "controller.log").open("a") as log:
            log.write(LOGGED)
        yield cluster


def test_a_bundle_has_what_a_report_needs_and_no_secret(cluster: Cluster) -> None:
    """People send it to others, by mail and into public trackers."""
    (host,) = cluster.host_ids()
    files, said = bundle(cluster, "all.tar.gz", "--job", "bad", HF_TOKEN=IN_SHELL, PLAIN="x")
    assert said["missing"] == {}
    assert {name for name in files if name.startswith("logs/")} >= {
        *("logs/controller.log", "logs/temporal.log", f"logs/agents/{host}.log"),
    }
    assert {*files} >= {
        *("versions.json", "cluster-versions.json", "machine.json", "cluster.json", "config.json"),
        *("status.json", "hosts.json", "slices.json", "autoscaler.json", "scheduler.json"),
        *("health.json", "workers.json", "server.json", "jobs.json"),
        *("workflows/scheduler.json", "workflows/autoscaler.json"),
        *("job/status.json", "job/explain.json", "job/workflow.json", "job/history.json"),
    }
    assert [name for name, text in files.items() if COMMON in text] == []
    # It is still of use.
    assert json.loads(files["status.json"]) == cluster.iris("cluster", "status", "--json").json
    assert json.loads(files["config.json"])["bootstrap"]["env_vars"] == {"HARMLESS": "[hidden]"}
    jobs = {each["id"]: each["state"] for each in json.loads(files["jobs.json"])}
    assert jobs[f"{USER}/bad"] == "FAILED"
    explained = json.loads(files["job/explain.json"])
    assert (explained["message"], explained["attempts"][0]["hosts"]) == (
        "exited with code 3",
        [host],
    )
    events = [each["eventType"] for each in json.loads(files["job/history.json"])]
    assert events[0] == "EVENT_TYPE_WORKFLOW_EXECUTION_STARTED"
    assert events[-1] == "EVENT_TYPE_WORKFLOW_EXECUTION_FAILED"
    assert "control plane of cluster local serves" in files["logs/controller.log"]
    assert "WANDB_API_KEY=[hidden-" in files["logs/controller.log"]


def test_a_bundle_lists_its_content_and_asks_for_a_look_and_replaces_no_file(
    cluster: Cluster,
) -> None:
    """Whoever sends it should know what is in it."""
    shown = cluster.iris("debug", "bundle", "-o", "shown.tar.gz", "--tail", "1").out
    assert "  jobs.json\n" in shown
    assert "tar -xzf shown.tar.gz" in shown
    refused = cluster.iris("debug", "bundle", "-o", "shown.tar.gz", code=2)
    assert "exists" in refused.err
    with tarfile.open(cluster.file("shown.tar.gz")) as archive:
        (log,) = [each for each in archive if each.name.endswith("logs/controller.log")]
        opened = archive.extractfile(log)
        assert opened is not None
        assert len(opened.read().splitlines()) == 1


def test_a_job_that_is_not_there_is_missing_and_the_rest_is_not(cluster: Cluster) -> None:
    """The name may be mistyped; the fault is still there to be reported."""
    files, said = bundle(cluster, "no-job.tar.gz", "--job", "nobody")
    assert {*said["missing"]} == {"job"}
    assert "jobs.json" in files
    assert files["missing.txt"].startswith("job: ")


def test_a_bundle_of_a_cluster_in_trouble_says_what_is_missing(tmp_path: Path) -> None:
    """The control plane hangs; then the server too; then nothing runs. Each time the rest is there,
    and the command ends.
    """
    with a_cluster("--cpu", "2") as cluster:
        cluster.iris("submit", "-n", "good", "--", "true")
        control, server = cluster.pid("controller", "serve"), cluster.pid("server", "start-dev")
        assert control is not None
        assert server is not None
        os.kill(control, signal.SIGSTOP)
        files, said = bundle(cluster, "silent.tar.gz", "--job", "good")
        assert {*files} >= {"jobs.json", "server.json", "job/history.json", "logs/controller.log"}
        assert {"status.json", "hosts.json", "scheduler.json"} <= {*said["missing"]}
        checks = {each["name"]: each["ok"] for each in json.loads(files["health.json"])}
        assert (checks["scheduler"], checks["store"]) == (False, True)
        os.kill(server, signal.SIGSTOP)
        files, said = bundle(cluster, "frozen.tar.gz", "--job", "good")
        assert {*said["missing"]} == {"service", "submissions"}
        assert {*files} >= {"machine.json", "config.json", "cluster.json", "logs/temporal.log"}
        os.kill(server, signal.SIGCONT)
        os.kill(control, signal.SIGCONT)
        (host,) = eventually(lambda: cluster.iris("host", "list", "--json", code=None).json or ())
        cluster.stop()
        files, said = bundle(cluster, "stopped.tar.gz", "--cluster", "local")
        assert {*said["missing"]} == {"service", "submissions"}
        assert json.loads(files["cluster.json"])["supervisor"]["alive"] is False
        assert f"logs/agents/{host['id']}.log" in files
