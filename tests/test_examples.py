"""The examples run, as a task of a job would run them, and name what there is."""

import os
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from iris.config import load_config, scale_groups_of
from iris.model import names
from iris.model.slice.scale_groups import SliceType

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"


def test_the_example_of_the_demo_estimates_pi() -> None:
    """`make demo` is what a newcomer sees first."""
    identity = {
        names.ENV_TASK_INDEX: "1",
        names.ENV_NUM_TASKS: "2",
        names.ENV_ATTEMPT: "1",
        names.ENV_HOST_ID: "here",
    }
    ran = subprocess.run(
        [sys.executable, EXAMPLES / "pi.py"],
        env={**os.environ, **identity},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    assert ran.stdout.startswith("task 1 of 2, attempt 1, on host here\n")
    assert abs(float(ran.stdout.split()[-1]) - 3.1416) < 0.01


@pytest.mark.parametrize("file", ["eu-west4.yaml", "mixed.yaml"])
def test_a_clusters_images_are_those_that_are_built_for_it(file: str) -> None:
    """Of a name that nobody has pushed, machines only say that they could not pull it, when they
    are paid for already.
    """
    script = (ROOT / "scripts/build-images").read_text()
    targets = re.search(r"^for target in (.+); do$", script, re.MULTILINE)
    pushed = re.search(r"--push (\S+)", script)
    config = load_config((EXAMPLES / file).read_text())

    assert targets is not None
    assert pushed is not None
    built = {f"{pushed[1]}/iris-{target}:latest" for target in targets[1].split()}
    assert {config.controller.image, config.bootstrap.image} == built


@pytest.mark.parametrize("file", ["eu-west4.yaml", "mixed.yaml"])
def test_a_clusters_slices_have_the_time_that_they_take(file: str) -> None:
    """Four or five minutes have been seen until a spot pod was up; a slice that is given up is
    asked for anew, for ever.
    """
    slices = [
        group
        for group in scale_groups_of(load_config((EXAMPLES / file).read_text()))
        if group.type is SliceType.TPU_VM
    ]

    assert slices
    assert [group.name for group in slices if group.pace.boot_timeout < timedelta(minutes=10)] == []
