"""The blocking client: its generated methods, and its local clusters."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from iris.client.blocking.client import IrisClient
from iris.config import load_config, make_local_config
from iris.model.errors import InvalidValue

ROOT = Path(__file__).parents[3]


def test_the_generated_methods_are_current() -> None:
    """A change of the asynchronous client needs no second change by hand (decision 152)."""
    script = [sys.executable, ROOT / "scripts/make-blocking.py", "--check"]
    checked = subprocess.run(script, capture_output=True, text=True)

    assert (checked.stderr, checked.returncode) == ("", 0)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"tpu": "v5litepod-17"}, r"tpu: 'v5litepod-17' is not a TPU variant"),
        (
            {
                "tpu": "v5litepod-4",
                "config": make_local_config(load_config("platform: {local: {}}")),
            },
            "add a scale group to the",
        ),
    ],
)
def test_a_local_cluster_of_a_wrong_shape_is_not_started(
    given: dict[str, Any], problem: str
) -> None:
    """Nothing has to be taken back."""
    with pytest.raises(InvalidValue, match=problem):
        IrisClient.local(**given)
