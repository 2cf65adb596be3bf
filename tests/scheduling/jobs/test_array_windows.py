"""How the parts of a large array share its limit."""

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from iris.scheduling.jobs.array_windows import PartLoad, shares

loads = st.lists(st.builds(PartLoad, st.integers(0, 20), st.integers(0, 20)), max_size=8)


@given(st.integers(1, 50), loads)
def test_no_part_loses_a_place(limit: int, parts: list[PartLoad]) -> None:
    """A task that runs cannot be stopped because another part wants to begin."""
    assert all(share >= part.used for share, part in zip(shares(limit, parts), parts, strict=True))


@given(st.integers(1, 50), st.lists(st.integers(0, 20), max_size=8))
def test_every_place_is_used_while_tasks_wait(limit: int, sizes: list[int]) -> None:
    """Hosts must not idle at the end of a part because its slowest task still runs."""
    parts = [PartLoad(size) for size in sizes]

    assert sum(shares(limit, parts)) == min(limit, sum(sizes))


class Array(RuleBasedStateMachine):
    """An array whose parts start tasks as soon as they may, and whose job learns of their ends at
    any time later.
    """

    def __init__(self) -> None:
        super().__init__()
        self.limit = 7
        self.waiting, self.running, self.places = [5, 9, 3, 6], [0] * 4, [0] * 4
        #: What the job knows of each part.
        self.unfinished = list(self.waiting)

    @rule()
    def the_job_shares_the_places_out(self) -> None:
        self.places = shares(
            self.limit, [PartLoad(*part) for part in zip(self.unfinished, self.places, strict=True)]
        )

    @rule(part=st.integers(0, 3))
    def a_part_starts_what_it_may(self, part: int) -> None:
        started = max(0, min(self.waiting[part], self.places[part] - self.running[part]))
        self.waiting[part] -= started
        self.running[part] += started

    @rule(part=st.integers(0, 3))
    def a_task_ends(self, part: int) -> None:
        self.running[part] = max(0, self.running[part] - 1)

    @rule(part=st.integers(0, 3))
    def a_part_reports(self, part: int) -> None:
        self.unfinished[part] = self.waiting[part] + self.running[part]

    @invariant()
    def no_more_run_than_the_limit(self) -> None:
        assert sum(self.running) <= self.limit


TestArray = Array.TestCase
