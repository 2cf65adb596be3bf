"""Processes that are kept."""

import asyncio
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from iris.model.errors import IrisError
from iris.processes.children import Child, Restarts

QUICK = Restarts(
    delay=timedelta(milliseconds=10),
    max_delay=timedelta(milliseconds=20),
    soon=timedelta(seconds=30),
)
#: Writes a letter, and dies.
DIES = "import sys; open(sys.argv[1], 'a').write('x'); sys.exit(7)"
#: Writes a letter, and ends as it should.
ENDS = "import sys; open(sys.argv[1], 'a').write('x')"


async def test_a_child_that_never_comes_up_is_given_up(tmp_path: Path) -> None:
    """Whoever waits for it is told, and does not wait for as long as it takes to give up
    waiting.
    """
    lives = tmp_path / "lives"
    child = Child("server", [sys.executable, "-c", DIES, str(lives)], None)

    with pytest.raises(IrisError, match="server ended with status 7; no start has succeeded"):
        await child.keep(asyncio.Event(), restarts=QUICK, tries=3)
    assert lives.read_text() == "xxx"


async def test_a_child_that_has_served_is_never_given_up(tmp_path: Path) -> None:
    """What killed it now will pass, as it has before."""
    lives, stop = tmp_path / "lives", asyncio.Event()

    def started(_: Child) -> None:
        if lives.exists() and len(lives.read_text()) >= 5:
            stop.set()

    served = QUICK.model_copy(update={"soon": timedelta()})
    child = Child("server", [sys.executable, "-c", DIES, str(lives)], None)
    await child.keep(stop, started, restarts=served, tries=3)
    await child.stop(timedelta(seconds=5))

    assert len(lives.read_text()) >= 5


async def test_a_child_that_ended_in_order_is_followed_at_once(tmp_path: Path) -> None:
    """A planned restart of a control plane does not wait as after a crash."""
    lives, stop = tmp_path / "lives", asyncio.Event()

    def started(_: Child) -> None:
        if lives.exists():
            stop.set()

    patient = Restarts(delay=timedelta(hours=1), soon=timedelta())
    child = Child("controller", [sys.executable, "-c", ENDS, str(lives)], None)
    async with asyncio.timeout(60):
        await child.keep(stop, started, restarts=patient)
    await child.stop(timedelta(seconds=5))
