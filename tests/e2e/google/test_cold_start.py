"""A cluster from a configuration file: a slice comes when a job wants it, does its work, and goes
when nobody needs it.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cluster import USER, Cluster, a_cluster, eventually, until

pytestmark = pytest.mark.long

EXAMPLE = Path(__file__).parents[3] / "examples" / "eu-west4.yaml"
GROUP = "tpu_v5e_16"
GANG = ("--tpu", "v5litepod-16")
#: Says who it is, and waits until there is a file named in its argument.
PROGRAM = """
import json, os, pathlib, sys, time
print(json.dumps({key: value for key, value in os.environ.items() if key.startswith(("IRIS_", "TPU_", "JAX_"))}))
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.05)
"""


@pytest.fixture(scope="module")
def europe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The example, with less patience for slices that nobody uses. Every test leaves it with its
    one CPU host.
    """
    written = EXAMPLE.read_text()
    hasty = written.replace("scale_down_delay: { minutes: 5 }", "scale_down_delay: { seconds: 3 }")
    assert hasty != written
    file = tmp_path_factory.mktemp("config") / EXAMPLE.name
    file.write_text(hasty)
    with a_cluster("--config", str(file), "--ephemeral", name="eu-west4") as running:
        yield running


def of_group(cluster: Cluster) -> list[str]:
    """The slices of the group of which there is anything on this machine."""
    return [slice_id for slice_id in cluster.machines() if slice_id.startswith("tpu-v5e-16-")]


def explained(cluster: Cluster, job: str) -> dict[str, Any]:
    found: dict[str, Any] = cluster.iris("explain", job, "--json").json
    return found


def shown(cluster: Cluster, slice_id: str) -> dict[str, Any]:
    found: dict[str, Any] = cluster.iris("slice", "show", slice_id, "--json").json
    return found


def is_gone(cluster: Cluster, slice_id: str) -> bool:
    """Whether nothing is left of a slice: neither its workflow, nor a file, nor an agent."""
    described = cluster.temporal("workflow", "describe", "-w", f"{cluster.name}/slice/{slice_id}")
    ended: bool = (
        described["workflowExecutionInfo"]["status"] == "WORKFLOW_EXECUTION_STATUS_COMPLETED"
    )
    return ended and slice_id not in cluster.machines() and not cluster.agents(slice_id)


def ever_made(cluster: Cluster) -> set[str]:
    """All slices that there are or have been."""
    found = cluster.temporal("workflow", "list", "--query", "IrisKind = 'slice'")
    return {entry["execution"]["workflowId"].rpartition("/")[2] for entry in found}


def test_a_gang_has_a_slice_made_for_it_which_goes_when_nobody_has_used_it_for_a_while(
    europe: Cluster,
) -> None:
    """From no TPU host to none, and at every step whoever asks is told: `explain`, `slice show`,
    `autoscaler status`, Web UI.
    """
    ((plain,),) = europe.slices().values()
    assert europe.hosts()[plain]["attributes"]["scale-group"] == "cpu"
    with europe.no_machine_starts():
        follower = europe.begin(
            "submit", "-n", "train", *GANG, "--", "python3", "-c", PROGRAM, "train.go"
        )
        (slice_id,) = eventually(lambda: of_group(europe))
        on_its_way = (
            f"slice {slice_id} of scale group {GROUP} is on its way (PROVISIONING in"
            " europe-west4-b)"
        )
        why = eventually(
            lambda: (
                (found := explained(europe, "train")) and on_its_way in found["message"] and found
            )
        )
        assert (why["state"], why["code"]) == ("PENDING", "SCALING")
        assert shown(europe, slice_id)["state"] == "PROVISIONING"
    eventually(lambda: len(follower.out.splitlines()) == 4)

    workers = [f"{slice_id}-w-{worker}" for worker in range(4)]
    seen = {line[:3]: json.loads(line[4:]) for line in follower.out.splitlines()}
    assert sorted(seen) == [f"[{rank}]" for rank in range(4)]
    for rank in range(4):
        is_told = {
            "IRIS_CLUSTER": "eu-west4",
            "IRIS_SLICE_ID": slice_id,
            "IRIS_HOST_ID": workers[rank],
            "IRIS_TASK_INDEX": str(rank),
            "IRIS_NUM_TASKS": "4",
            "IRIS_NUM_SLICES": "1",
            "JAX_PROCESS_ID": str(rank),
            "JAX_COORDINATOR_ADDRESS": seen["[0]"]["IRIS_COORDINATOR_ADDRESS"],
            "TPU_NAME": slice_id,
            "TPU_WORKER_ID": str(rank),
            "TPU_TOPOLOGY": "4x4",
            "TPU_ACCELERATOR_TYPE": "v5litepod-16",
        }
        assert {key: seen[f"[{rank}]"].get(key) for key in is_told} == is_told
    ready = shown(europe, slice_id)
    assert (ready["state"], ready["group"], ready["zone"], ready["size"]) == (
        "READY",
        GROUP,
        "europe-west4-b",
        4,
    )
    assert {host["id"]: host["running"] for host in ready["hosts"]} == {
        worker: [f"{USER}/train:{rank}"] for rank, worker in enumerate(workers)
    }
    assert [step["state"] for step in ready["steps"]] == [
        "REQUESTED",
        "PROVISIONING",
        "BOOTSTRAPPING",
        "READY",
    ]
    described = europe.temporal("workflow", "describe", "-w", f"eu-west4/slice/{slice_id}")
    assert (
        f"scale group {GROUP} in europe-west4-b"
        in described["executionConfig"]["userMetadata"]["summary"]
    )
    (metadata,) = europe.temporal("workflow", "metadata", "-w", f"eu-west4/slice/{slice_id}")[
        "queryResult"
    ]
    assert "**READY**" in metadata["currentDetails"]

    # A task without devices never goes there, though there is room.
    assert europe.iris("submit", "--", "printenv", "IRIS_HOST_ID").out == f"{plain}\n"
    large = europe.iris("submit", "--dry-run", "--json", "--cpu", "64", "--", "true", code=5).json
    (tpu,) = [each for each in large["verdicts"] if each["group"] == GROUP]
    assert (large["starts"], tpu["hosts"], tpu["fits"]) == (False, 4, False)

    europe.file("train.go").touch()
    follower.ends()
    eventually(lambda: is_gone(europe, slice_id), every=0.3)
    assert list(europe.hosts()) == [plain]
    gone = shown(europe, slice_id)
    assert (gone["state"], gone["fault"]) == ("DELETED", None)
    assert [step["state"] for step in gone["steps"]][-2:] == ["DELETING", "DELETED"]
    assert "idle" in gone["reason"]
    status = europe.iris("autoscaler", "status", "--json").json
    acts = [(act["what"], act["reason"]) for act in status["actions"] if act["group"] == GROUP]
    assert [what for what, _ in acts] == ["scale_up", "scale_down"]
    assert acts[0][1].startswith(f"for {USER}/train")


def test_a_slice_comes_and_goes_the_same_when_the_control_plane_is_killed_meanwhile(
    europe: Cluster,
) -> None:
    """While its machines boot, and again while its gang runs: there is one slice, and nothing of it
    stays.
    """
    before = ever_made(europe)
    with europe.no_machine_starts():
        follower = europe.begin(
            "submit",
            "-n",
            "bold",
            *GANG,
            "--",
            "sh",
            "-c",
            f"touch bold.$IRIS_TASK_INDEX; {until('bold.go')}",
        )
        (slice_id,) = eventually(lambda: of_group(europe))
        killed = europe.kill("controller")
    for rank in range(4):
        europe.there_is(f"bold.{rank}")
    again = eventually(lambda: (pid := europe.pid("controller")) != killed and pid)
    europe.kill("controller")
    eventually(lambda: europe.pid("controller") not in (None, again))
    europe.file("bold.go").touch()
    follower.ends()
    assert [task["attempt"] for task in europe.status("bold")["tasks"]] == [1] * 4
    eventually(lambda: is_gone(europe, slice_id), every=0.3)
    assert ever_made(europe) - before == {slice_id}


def test_tasks_without_devices_get_machines_of_their_own(europe: Cluster) -> None:
    """When the host there is is full, their group grows; a gang's slice is not in question."""
    before = ever_made(europe)
    (plain,) = europe.hosts()
    fills = europe.begin(
        "submit",
        "-n",
        "fills",
        "--cpu",
        "8",
        "--",
        "sh",
        "-c",
        f"touch fills.runs; {until('fills.go')}",
    )
    europe.there_is("fills.runs")
    another = europe.iris(
        "submit", "-n", "more", "--cpu", "8", "--", "printenv", "IRIS_HOST_ID"
    ).out.strip()
    assert (another != plain, another.startswith("cpu-")) == (True, True)
    europe.file("fills.go").touch()
    fills.ends()
    eventually(lambda: len(europe.hosts()) == 1, every=0.3)
    assert ever_made(europe) - before == {another}


def test_what_could_be_made_is_feasible_and_what_no_group_has_is_refused(europe: Cluster) -> None:
    """`--dry-run` names the groups without slices, `--require-feasible` the nearest there could be.
    Nothing is made for them.
    """
    before = ever_made(europe)
    asks = {
        "could-be": (["--dry-run", "--json", "--require-feasible", "--tpu", "v5litepod-64"], 0),
        "no-group": (["--require-feasible", "--tpu", "v5litepod-128"], 5),
        "too-many": (["--require-feasible", "--tpu", "v5litepod-256", "--slices", "2"], 5),
    }
    begun = {
        name: europe.begin("submit", "-n", name, *options, "--", "true")
        for name, (options, _) in asks.items()
    }
    ran = {name: begun[name].ends(code) for name, (_, code) in asks.items()}
    could_be = ran["could-be"].json
    assert (could_be["starts"], could_be["feasible"], could_be["refusal"]["code"]) == (
        False,
        True,
        "SCALING",
    )
    assert "tpu_v5e_64" in could_be["refusal"]["message"]
    hosts = {each["group"]: each["hosts"] for each in could_be["verdicts"]}
    assert hosts["tpu_v5e_64"] == 0
    assert set(hosts) >= {"cpu", "tpu_v5e_8", "tpu_v5e_16", "tpu_v5e_256", "tpu_v6e_32"}
    assert "tpu:v5litepod-128" in ran["no-group"].err
    assert "nearest available, tpu:v5litepod-" in ran["no-group"].err
    assert "2" in ran["too-many"].err
    assert ever_made(europe) == before
