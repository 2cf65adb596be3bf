"""The blocking client: its generated methods, and its local clusters."""

import runpy
from pathlib import Path
from typing import Any

import pytest

from iris.client.blocking.client import IrisClient
from iris.config import load_config, make_local_config
from iris.model.errors import InvalidValue

ROOT = Path(__file__).parents[3]
GENERATED = ROOT / "iris/client/blocking/generated"


def test_the_generated_methods_are_current() -> None:
    """A change of the asynchronous client needs no second change by hand (decision 152)."""
    text_of = runpy.run_path(str(ROOT / "scripts/make-blocking.py"))["text_of"]
    modules = [path for path in GENERATED.glob("*.py") if path.stem != "__init__"]

    stale = [path.name for path in modules if path.read_text() != text_of(path.stem)]

    assert stale == [], "run: make blocking"
    assert len(modules) == 4


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"tpu": "v5litepod-17"}, r"tpu: 'v5litepod-17' is not a TPU variant"),
        (
            {
                "tpu": "v5litepod-4",
                "config": make_local_config(load_config("platform: {local: {}}")),
            },
            "which lists the scale groups itself; add a scale group for it to the configuration",
        ),
    ],
)
def test_a_local_cluster_of_a_wrong_shape_is_not_started(
    given: dict[str, Any], problem: str
) -> None:
    """Nothing has to be taken back."""
    with pytest.raises(InvalidValue, match=problem):
        IrisClient.local(**given)
