"""The workload that is exported from the records in a store."""

from pathlib import Path

from iris.cli.show.usage import trace_notes
from iris.client.fleet.usage_report import question
from iris.client.fleet.usage_trace import made_trace
from iris.simulation.trace import Run
from iris.storage.object_store import Store
from iris.usage.lines import to_objects
from iris.usage.records import DroppedUses, Record, Use, UseEnd
from tests.usage.made_uses import T, at, attempt, slice_use


async def test_the_trace_has_what_is_stored_and_what_is_present_each_once(tmp_path: Path) -> None:
    """A record that was stored meanwhile counts, because it says how the use ended."""
    store = Store(tmp_path.as_uri())
    stored: list[Record] = [
        attempt(1, 3, id="ada/a@1/r", end=UseEnd.FAILED),
        slice_use(0, 1, 5),
        attempt(-9, -8, id="ada/old@1/r"),
        DroppedUses(id="d", count=7, since=at(1), until=at(2)),
    ]
    for path, content in to_objects("c", stored).items():
        await store.put(path, content)
    present: list[Use] = [
        attempt(1, 4, id="ada/a@1/r", end=UseEnd.OPEN),
        attempt(2, 4, id="ada/b@1/r", end=UseEnd.OPEN),
        slice_use(0, 1, 4, open=True),
    ]
    made = await made_trace(store, "c", question((), T, at(4)), present, names=True)
    assert {gang.id: gang.runs for gang in made.trace.gangs} == {
        "ada/a": (Run(seconds=7200, end=UseEnd.FAILED),),
        "ada/b": (Run(seconds=7200),),
    }
    assert len(made.trace.slices) == 1
    (gap,) = made.gaps
    assert "7 uses are lost" in gap
    assert list(trace_notes(made.trace, made.gaps)) == [
        "2026-11-02 00:00 to 2026-11-02 04:00 UTC: wrote 2 gangs and 1 slice",
        f"incomplete: {gap}",
    ]
