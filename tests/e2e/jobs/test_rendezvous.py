"""Two programs of a gang find each other by nothing but what Iris tells them."""

import json
import sys
from collections.abc import Iterator

import pytest

from tests.e2e.cluster import Cluster, a_cluster

pytestmark = pytest.mark.long

#: v4-16 is a slice of two hosts with four chips each.
GANG = ("--tpu", "v4-16")
#: Task 0 listens where all are told to meet; the others come, each with what it was told. Task 0
#: prints everybody's.
MEET = """
import json, os, socket, time
host, _, port = os.environ["IRIS_COORDINATOR_ADDRESS"].rpartition(":")
told = {name: value for name, value in os.environ.items() if name.split("_")[0] in ("IRIS", "JAX", "TPU", "MEGASCALE", "PJRT")}
if os.environ["IRIS_TASK_INDEX"] == "0":
    everybody = [told]
    with socket.create_server((host, int(port))) as server:
        while len(everybody) < int(os.environ["IRIS_NUM_TASKS"]):
            with server.accept()[0] as caller:
                everybody.append(json.loads(caller.makefile().readline()))
                caller.sendall(b"seen\\n")
    print(json.dumps(everybody))
else:
    while True:
        try:
            meeting = socket.create_connection((host, int(port)), timeout=120)
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
    with meeting:
        meeting.sendall(json.dumps(told).encode() + b"\\n")
        assert meeting.makefile().readline() == "seen\\n"
"""


@pytest.fixture(scope="module")
def tpus() -> Iterator[Cluster]:
    """Two simulated slices of two hosts."""
    with a_cluster(*GANG, "--slices", "2", "--ephemeral", name="meet") as running:
        yield running


def meet(cluster: Cluster, *options: str) -> list[dict[str, str]]:
    """What each task was told, in the order of their numbers."""
    said = cluster.iris(
        "submit", *GANG, *options, "--port", "http", "--", sys.executable, "-c", MEET
    ).out
    everybody: list[dict[str, str]] = json.loads(said.partition(" ")[2])
    return sorted(everybody, key=lambda told: int(told["IRIS_TASK_INDEX"]))


def test_two_tasks_on_one_slice_meet_where_they_are_told_to(tpus: Cluster) -> None:
    """Each knows who it is, in every dialect; and has a port of its own although both share a
    machine here.
    """
    first, second = meet(tpus)
    same = (
        "IRIS_COORDINATOR_ADDRESS",
        "IRIS_SLICE_ID",
        "JAX_COORDINATOR_ADDRESS",
        "TPU_NAME",
        "TPU_TOPOLOGY",
    )
    own = ("IRIS_HOST_ID", "IRIS_OUTPUT_DIR", "IRIS_PORT_HTTP", "IRIS_TASK_ID")

    assert {name: first[name] for name in same} == {name: second[name] for name in same}
    assert [name for name in own if first[name] == second[name]] == []
    assert first["JAX_COORDINATOR_ADDRESS"] == first["IRIS_COORDINATOR_ADDRESS"]
    for number, told in enumerate((first, second)):
        expected = {
            "IRIS_NUM_SLICES": "1",
            "IRIS_NUM_TASKS": "2",
            "IRIS_HOST_ADDRESS": "127.0.0.1",
            "JAX_NUM_PROCESSES": "2",
            "JAX_PROCESS_ID": str(number),
            "TPU_ACCELERATOR_TYPE": "v4-16",
            "TPU_TOPOLOGY": "2x2x2",
            "TPU_WORKER_ID": str(number),
        }
        assert {name: told.get(name) for name in expected} == expected
        # The chips are not real: no library may be made to look for them.
        assert (told["JAX_PLATFORMS"], told["TPU_SKIP_MDS_QUERY"]) == ("cpu", "1")
        assert {"PJRT_DEVICE", "MEGASCALE_COORDINATOR_ADDRESS"} & set(told) == set()


def test_tasks_on_two_slices_meet_and_know_their_slices(tpus: Cluster) -> None:
    """And libtpu finds where the slices meet on the host of task 0."""
    everybody = meet(tpus, "--slices", "2")

    assert [told["JAX_PROCESS_ID"] for told in everybody] == ["0", "1", "2", "3"]
    assert [told["TPU_WORKER_ID"] for told in everybody] == ["0", "1", "0", "1"]
    assert [told["MEGASCALE_SLICE_ID"] for told in everybody] == ["0", "0", "1", "1"]
    assert {told["MEGASCALE_NUM_SLICES"] for told in everybody} == {"2"}
    assert {told["MEGASCALE_COORDINATOR_ADDRESS"] for told in everybody} == {"127.0.0.1"}
    assert {told["MEGASCALE_PORT"] for told in everybody} == {"8081"}
    assert len({told["IRIS_PORT_HTTP"] for told in everybody}) == 4
