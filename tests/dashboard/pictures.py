"""Makes the pictures of the dashboard in docs/pictures (`make dashboard-pictures`): of a local cluster
with simulated TPU slices, with jobs of several users, and with made records of use for the last
week.
"""

import asyncio
import random
import tempfile
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

from iris.model.job.spec import Band
from iris.storage.object_store import Store
from iris.usage.lines import to_objects
from iris.usage.records import AttemptUse, SliceUse, UseEnd
from tests.dashboard.browser import chromium
from tests.e2e.cluster import Cluster, a_cluster, eventually
from tests.e2e.operate.test_pages import DOCS, write_files

PICTURES = DOCS / "pictures"
NAME = "lab"
CONFIG = """
name: lab
platform: {gcp: {project_id: my-project, default_zones: [europe-west4-b]}}
controller: {image: example/iris, bundle_prefix: "gs://my-bucket/iris", gcp: {zone: europe-west4-b}}
bootstrap: {image: example/iris}
prices:
  currency: USD
  rates:
    - {machine: v5litepod, chip_hour: 1.20}
    - {machine: n2-standard-32, machine_hour: 1.55}
teams: {vision: [ada, ben], language: [chen, dana]}
scale_groups:
  tpu:
    type: tpu_vm
    accelerator_variant: v5litepod-16
    min_slices: 2
    max_slices: 3
  cpu:
    type: gce_vm
    machine_type: n2-standard-32
    min_slices: 1
    max_slices: 4
"""
USERS = ("ada", "ben", "chen", "dana")
TRAIN = (
    "import time, sys\\nfor step in range(9000):\\n    x = [0] * 9000000\\n"
    "    print(f'step {step}  loss {3.2 / (step + 1) + 1.7:.4f}', flush=True)\\n    time.sleep(1)"
)


def made_uses(now: datetime) -> list[AttemptUse | SliceUse]:
    """A week of two TPU slices and a machine without accelerators, with jobs of four users."""
    draw = random.Random(7)  # the pictures stay the same
    uses: list[AttemptUse | SliceUse] = []
    begin = now - timedelta(days=7)
    for number in range(2):
        uses.append(
            SliceUse(
                id=f"tpu-made-{number}",
                group="tpu",
                zone="europe-west4-b",
                machine="v5litepod-16",
                hosts=4,
                tpu_chips=16,
                cpu_millis=448_000,
                requested_at=begin,
                ready_at=begin + timedelta(minutes=6),
                gone_at=now - timedelta(hours=1),
            )
        )
        at = begin + timedelta(hours=1)
        while at < now - timedelta(hours=16):
            user = USERS[draw.choice((0, 0, 1, 2, 2, 3))]
            length = timedelta(hours=draw.uniform(2, 14))
            uses.append(
                AttemptUse(
                    id=f"{user}/train@{at.isoformat()}-{number}",
                    job=f"{user}/train-{len(uses)}",
                    user=user,
                    band=Band.BATCH,
                    group="tpu",
                    slices=(f"tpu-made-{number}",),
                    hosts=4,
                    host_share=4.0,
                    tpu_chips=16,
                    cpu_millis=64_000,
                    placed_at=at,
                    started_at=at + timedelta(minutes=2),
                    ended_at=at + length,
                    end=draw.choice((UseEnd.SUCCEEDED,) * 4 + (UseEnd.PREEMPTED, UseEnd.FAILED)),
                )
            )
            at += length + timedelta(hours=draw.uniform(0.1, 3))
    return uses


async def store_week(store: str) -> None:
    """Stores the made records where the cluster's own are."""
    there = Store(store)
    for path, content in to_objects(NAME, made_uses(datetime.now(UTC))).items():
        await there.put(path, content)


def publish(cluster: Cluster) -> None:
    """Publishes the simulations of the page about them."""
    write_files(cluster, DOCS / "how-to/what-if.md")
    against, more = ("--against", "two-slices.yaml"), ("--synthetic", "jobs.yaml", "--seeds", "5")
    for name, file in {"spot": "spot.yaml", "one-more-slice": "three-slices.yaml"}.items():
        asked = ("--config", file, *against, *more, "--world", "world.yaml", "--publish", name)
        cluster.iris("simulate", *asked, IRIS_USER="ada")


def fill(cluster: Cluster) -> dict[str, str]:
    """Starts jobs. Returns the pages to take pictures of, by the name of the picture."""

    def submit(user: str, name: str, *options: str) -> None:
        cluster.iris("submit", "-d", "-n", name, "--no-workspace", *options, IRIS_USER=user)

    submit(
        "ada",
        "llama-pretrain",
        *("--tpu", "v5litepod-16", "--tag", "project=llama", "--max-retries", "3"),
        *("--", "python3", "-c", TRAIN.encode().decode("unicode_escape")),
    )
    submit("chen", "eval", "--tpu", "v5litepod-16", "--", "sleep", "9000")
    submit("dana", "finetune", "--tpu", "v5litepod-16", "--slices", "2", "--", "sleep", "9000")
    submit("ben", "tokenize", "--replicas", "96", "--cpu", "0.5", "--", "sleep", "9000")
    submit(
        "ben",
        "preprocess",
        *("--replicas", "128", "--cpu", "0.1", "--max-task-failures", "128", "--"),
        *(
            "sh",
            "-c",
            "test $((IRIS_TASK_INDEX % 9)) -ne 4 || exit 1; sleep $((IRIS_TASK_INDEX % 3 * 900))",
        ),
    )
    submit("dana", "plot", "--", "python3", "-c", "raise ValueError('no column named loss')")
    eventually(lambda: cluster.iris("jobs", "--all", "--json").json)
    host = cluster.iris("host", "list", "--json").json[0]["id"]
    return {
        "overview": "/",
        "jobs": "/jobs",
        "job": "/jobs/ada/llama-pretrain?task=0",
        "array": "/jobs/ben/preprocess",
        "logs": "/logs/ada/llama-pretrain",
        "queue": "/queue",
        "fleet": "/fleet",
        "host": f"/hosts/{host}",
        "autoscaler": "/autoscaler",
        "usage": "/usage?by=user",
        "simulations": "/simulations",
        "simulation": "/simulations/one-more-slice",
    }


def main() -> None:
    """Makes all pictures."""
    with ExitStack() as stack:
        file = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "lab.yaml"
        file.write_text(CONFIG)
        cluster = stack.enter_context(a_cluster("--config", str(file), name=NAME))
        location = cluster.iris("cluster", "status", "--json").json
        asyncio.run(store_week(location["store"]))
        publish(cluster)
        pages = fill(cluster)
        browser = stack.enter_context(chromium())
        page = browser.new_page(viewport={"width": 1280, "height": 860})
        page.goto(location["dashboard"] + pages["job"])
        page.wait_for_selector("#use svg", timeout=150_000)  # agents store the use each minute
        for name, path in pages.items():
            page.goto(location["dashboard"] + path)
            page.wait_for_selector('#connection[data-state="live"]')
            page.screenshot(path=PICTURES / f"dashboard-{name}.png", full_page=name == "job")
        dark = browser.new_page(viewport={"width": 1280, "height": 860}, color_scheme="dark")
        dark.goto(location["dashboard"])
        dark.wait_for_selector('#connection[data-state="live"]')
        dark.screenshot(path=PICTURES / "dashboard-dark.png")


if __name__ == "__main__":
    main()
