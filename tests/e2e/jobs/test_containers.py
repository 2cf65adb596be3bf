"""The images of docker/, built for real, as two containers that are a cluster: the startup scripts
run them here as they do on Google's machines, and only Google itself is played.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from iris.config import load_config
from iris.platforms.gcp import labels as label_rules
from iris.platforms.gcp.settings import gcp_settings
from iris.platforms.gcp.startup import controller_script
from tests.containers import inspect
from tests.e2e.cluster import Cluster, a_home, eventually, free_port, until
from tests.fakes.google.client import FakeGoogle
from tests.fakes.metadata import FakeMetadata
from tests.images import docker_image

pytestmark = pytest.mark.docker

ROOT = Path(__file__).parent.parent.parent.parent
TAG = "of-tests"
CONTAINERS = ("iris-controller", "iris-agent")

#: The store is in a directory that both containers have: there is no bucket here.
CONFIG = """
name: boxes
platform:
  gcp:
    project_id: boxes-project
    default_zones: [europe-west4-a]
    endpoints: {{tpu: "{tpu}", compute: "{compute}"}}
controller:
  image: iris-controller:{tag}
  bundle_prefix: file://{root}/var/lib/iris/cache/store
  gcp: {{port: {port}}}
bootstrap:
  image: iris-agent:{tag}
  cache_dir: /var/lib/iris/cache
  env_vars: {{WORDS: "it's $5"}}
scale_groups:
  cpu:
    type: gce_vm
    machine_type: n2-standard-2
    min_slices: 1
    max_slices: 1
    attributes: {{pool: boxes}}
"""


class Boxes(NamedTuple):
    """The cluster of two containers."""

    address: str
    client: Cluster
    root: Path

    def iris(self, *arguments: str) -> str:
        """What the command says."""
        return self.client.iris(*arguments, within=120, IRIS_CLUSTER=self.address).out


@pytest.fixture(scope="module")
def boxes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Boxes]:
    docker_image()  # or the reason why there is no engine
    taken = [
        name for name in CONTAINERS if docker("inspect", "--type=container", name).returncode == 0
    ]
    assert not taken, (
        f"this machine has {taken} of its own, and scripts that start others of these names would"
        " end them"
    )
    built = subprocess.run(
        [ROOT / "scripts/build-images", "--local-base", "--tag", TAG],
        capture_output=True,
        text=True,
        check=False,
        timeout=840,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    with ExitStack() as stack:
        stack.callback(docker, "rm", "-f", *CONTAINERS)
        stack.callback(show_logs)
        google = stack.enter_context(FakeGoogle())
        metadata = stack.enter_context(FakeMetadata().started())
        home = stack.enter_context(a_home())
        root = home / "root"
        # The control plane is nobody on this machine; on Google's the store is a bucket.
        (root / "var/lib/iris/cache/store").mkdir(parents=True)
        (root / "var/lib/iris/cache/store").chmod(0o777)
        port = free_port()
        config = CONFIG.format(
            tpu=google.tpu, compute=google.compute, root=root, port=port, tag=TAG
        )
        metadata.put("instance/network-interfaces/0/ip", "127.0.0.1")
        settings = gcp_settings(load_config(config), "unknown", text=config)
        boot(controller_script(settings, image=f"iris-controller:{TAG}", port=port), root, metadata)
        # Its first deed is to ask for the one machine that there is always to be.
        made = eventually(lambda: google.resources("boxes-project"), within=120)
        asked = json.loads(made[0]["body"])["metadata"]["items"]
        attributes = {item["key"]: item["value"] for item in asked}
        for key, value in attributes.items():
            metadata.put(f"instance/attributes/{key}", value)
        boot(attributes[label_rules.STARTUP_KEY], root, metadata)
        yield Boxes(f"127.0.0.1:{port}/boxes", Cluster(home, "boxes"), root)


def docker(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["docker", *arguments], capture_output=True, text=True, check=False, timeout=60
    )


def show_logs() -> None:
    """Which pytest passes on when a test has failed."""
    for name in CONTAINERS:
        said = docker("logs", "--tail=40", name)
        sys.stderr.write(f"{name} says:\n{said.stdout}{said.stderr}\n")


def boot(script: str, root: Path, metadata: FakeMetadata) -> None:
    """Run it as a machine does that boots, but that it is not alone here: its directories are below
    the root. No registry has the image.
    """
    where = {"IRIS_ROOT": str(root), "GCE_METADATA_HOST": metadata.url.removeprefix("http://")}
    haste = {"IRIS_TRIES": "1", "IRIS_PAUSE": "0", "IRIS_CHECK_INTERVAL": "1"}
    file = root / "startup-script"
    file.write_text(script)
    ran = subprocess.run(
        ["bash", file],
        env={**os.environ, **where, **haste},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.endswith("is up\n[iris-init] done\n"), ran.stdout + ran.stderr


def test_a_job_runs_in_the_agents_container(boxes: Boxes) -> None:
    """The two images, the scripts that start them and the network between them: nothing of it works
    without the rest.
    """
    out = boxes.iris(
        "submit",
        "-n",
        "hello",
        "--",
        "sh",
        "-c",
        'echo "$WORDS on $IRIS_HOST_ID"; cat /etc/debian_version',
    )

    slice_id = out.split(" on ", 1)[1].split()[0]
    assert "it's $5 on " in out
    assert slice_id in boxes.iris("host", "list")
    assert "\n12." in out, "it ran on this machine, and not in the container"


def test_a_task_with_an_image_runs_beside_the_agents_container(boxes: Boxes) -> None:
    """Its directories are the machine's, and so they must have one name for the machine and for the
    agent.
    """
    program = "only-here && echo kept > $IRIS_OUTPUT_DIR/x"

    out = boxes.iris("submit", "-n", "boxed", "--image", docker_image(), "--", "sh", "-c", program)

    assert "here: vanilla" in out
    assert "x" in boxes.iris("fetch", "boxed", "--list")


def test_a_job_outlives_the_agents_container(boxes: Boxes) -> None:
    """What runs in it ends with it, through no fault of its own: the next agent is told to run it
    again.
    """
    boxes.iris(
        "submit",
        "-n",
        "lasting",
        "-d",
        "--",
        "sh",
        "-c",
        f"echo begun; {until('/tmp/go')}; echo whole",
    )
    eventually(lambda: "begun" in boxes.iris("logs", "lasting"))

    docker("kill", "--signal=KILL", "iris-agent")
    docker("start", "iris-agent")
    assert docker("exec", "iris-agent", "touch", "/tmp/go").returncode == 0

    boxes.iris("wait", "lasting")
    assert boxes.iris("logs", "lasting").split()[-1] == "whole"


def test_the_control_planes_container_is_nobody_on_the_machine(boxes: Boxes) -> None:
    """It needs no right there: what it does it does at Google's."""
    assert inspect("iris-controller")["Config"]["User"] == "10001"
    assert (boxes.root / "etc/iris/config.yaml").stat().st_mode & 0o077 == 0
