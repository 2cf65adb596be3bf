"""An image whose tag somebody moves to another image: whoever may push would run programs in
everybody's jobs.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from iris.activities.host.attempt.host_context import HostContext
from iris.activities.host.runtimes.container import engine
from iris.config import InvalidConfig, load_config
from iris.model.host.faults import FAULTS, Fault
from iris.model.job.environments import has_digest
from iris.model.states import TaskState
from tests.activities.host.attempt import test_attempt

DIGEST = "sha256:" + 64 * "0"
CONFIG = """
platform: {local: {}}
bootstrap: {require_image_digests: true, task_image: IMAGE}
scale_groups:
  cpu: {type: local_vm, task_image: IMAGE, resources: {cpu: 2}}
"""


class Bench(test_attempt.Bench):
    """Attempts on a host that requires digests."""

    image: str | None = None

    def _context(self, faults: Sequence[Fault] = FAULTS) -> HostContext:
        return replace(super()._context(faults), require_digests=True, image=self.image)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("python", False),
        ("python:3.11", False),
        (f"python@{DIGEST}", True),
        (f"localhost:5000/team/python:3.11@{DIGEST}", True),
        (f"python@{DIGEST[:-1]}", False),
        (f"python@{DIGEST}0", False),
        (f"python@{DIGEST}/x:latest", False),
        (f"python@{DIGEST}\n", False),
    ],
)
def test_a_digest_is_whole_and_at_the_end_of_the_name(name: str, given: bool) -> None:
    """The engine would read anything else as a tag, or refuse it."""
    assert has_digest(name) is given


@pytest.mark.parametrize("of_the_host", [False, True])
async def test_a_task_whose_image_has_a_tag_is_refused_before_the_image_is_pulled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of_the_host: bool
) -> None:
    """Also if it is the image of tasks that name none. It fails on every host, so it is not tried
    again.
    """
    monkeypatch.setattr(engine, "CLEAR_EVERY", 0.01)  # there may be no engine
    bench = Bench(tmp_path)
    bench.image = (
        "nowhere.invalid/python:3.11" if of_the_host else f"nowhere.invalid/python@{DIGEST}"
    )
    outcome = await bench.outcome(
        "true", image=None if of_the_host else "nowhere.invalid/python:3.11"
    )

    assert (outcome.state, outcome.exit_code) == (TaskState.FAILED, 126)
    assert outcome.reason.startswith(
        "nowhere.invalid/python:3.11 names the image by a tag, which can be changed"
    )


async def test_a_task_without_an_image_is_not_concerned(tmp_path: Path) -> None:
    """Its program is the host's."""
    assert (await Bench(tmp_path).outcome("true")).state is TaskState.SUCCEEDED


def test_images_of_the_configuration_have_to_have_digests_too() -> None:
    """Otherwise every task without an image would fail."""
    with pytest.raises(InvalidConfig) as refused:
        load_config(CONFIG.replace("IMAGE", "'python:3.11'"))

    assert [problem.partition(":")[0] for problem in refused.value.problems] == [
        "bootstrap.task_image",
        "scale_groups.cpu.task_image",
    ]
    load_config(CONFIG.replace("IMAGE", f"python@{DIGEST}"))
