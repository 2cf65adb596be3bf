"""Hosts as rows and cells."""

from iris.client.operate.worker_reports import AgentReport
from iris.dashboard.hosts import STEPS, grid, in_order, job_of, matching, row_of
from iris.dashboard.problems import silent_hosts
from iris.messages.scheduler import HostView
from iris.model.host.constraints import SCALE_GROUP
from iris.model.host.resources import Resources
from iris.model.slice.status import SliceState
from tests.builders import TPU_HOST, a_host, at, some
from tests.scaling_world import a_group, a_slice_of


def a_view(
    host_id: str = "h1",
    offers: Resources | None = None,
    used: Resources | None = None,
    tasks: tuple[str, ...] = (),
    closed: str = "",
    **changes: object,
) -> HostView:
    host = a_host(host_id, offers, **changes)
    taken = (used or some(cpu=0)).amounts()
    free = {name: amount - taken[name] for name, amount in host.resources.amounts().items()}
    return HostView(host=host, free=free, running=tasks, closed=closed)


def test_a_host_is_as_full_as_its_accelerators_or_its_scarcest_other_resource() -> None:
    """All chips in use means that the host is full, whatever its cores do."""
    tpu = row_of(a_view(offers=TPU_HOST, used=some(cpu=1, device="tpu:v5litepod-16:2")))
    cpu = row_of(a_view(offers=some(cpu=4, memory=16), used=some(cpu=1, memory=12)))

    assert (tpu.used, tpu.use) == (0.5, "2 of 4 chips, 1 of 8 cores")
    assert (cpu.used, cpu.use) == (0.75, "1 of 4 cores, 12 GiB of 16 GiB")


def test_a_host_that_shrank_below_its_use_is_full() -> None:
    """Its free amounts are negative."""
    row = row_of(a_view(offers=some(cpu=2), used=some(cpu=3), tasks=("a/b:0",)))

    assert (row.used, row.step) == (1.0, STEPS)


def test_a_task_that_uses_almost_nothing_still_fills_a_cell_a_little() -> None:
    """A cell that looks free must be free."""
    row = row_of(a_view(offers=some(cpu=1000), used=some(cpu=1), tasks=("a/b:0",)))

    assert row.step == 1


def test_the_state_of_a_host_is_what_an_operator_has_to_know_first() -> None:
    """Silence counts more than a closure, and a closure more than tasks."""
    tasks = ("a/b:0",)
    silent = {"h1": at(0)}

    assert row_of(a_view()).state == "FREE"
    assert row_of(a_view(tasks=tasks)).state == "BUSY"
    assert row_of(a_view(tasks=tasks, closed="cordoned: fan")).state == "CORDONED"
    assert row_of(a_view(closed="its scale group is paused")).state == "PAUSED"
    assert row_of(a_view(closed="cordoned: fan"), silent=silent).state == "SILENT"


def test_a_host_without_reports_for_too_long_is_silent() -> None:
    """A host without any report may be new, and a report of an earlier agent does not count."""
    views = [a_view(name) for name in ("fresh", "old", "new", "restarted")]
    reports = {
        ("fresh", "first"): AgentReport(at(-10), at(-100)),
        ("old", "first"): AgentReport(at(-20), at(-100)),
        ("restarted", "earlier"): AgentReport(at(-60), at(-100)),
    }

    assert silent_hosts(views, reports, at(0)) == {"old": at(-20)}


def test_the_text_of_the_filter_is_looked_for_in_ids_tasks_and_reasons() -> None:
    """In any case of its letters."""
    rows = [
        row_of(a_view("rack-7")),
        row_of(a_view("h2", tasks=("ada/Train:0",))),
        row_of(a_view("h3", closed="cordoned: new fan")),
    ]

    assert [row.id for row in matching(rows, text="RACK")] == ["rack-7"]
    assert [row.id for row in matching(rows, text="train")] == ["h2"]
    assert [row.id for row in matching(rows, text="fan")] == ["h3"]
    assert matching(rows, group="tpus") == []
    assert len(matching(rows, group="")) == 3


def test_equal_rows_are_in_the_order_of_their_ids_in_both_directions() -> None:
    """So a page of the list has the same hosts at each update."""
    rows = [row_of(a_view(name, tasks=tasks)) for name, tasks in (("c", ()), ("a", ()))]
    rows.append(row_of(a_view("b", tasks=("x/y:0",))))

    assert [row.id for row in in_order(rows, "tasks")] == ["a", "c", "b"]
    assert [row.id for row in in_order(rows, "-tasks")] == ["b", "a", "c"]
    assert [row.id for row in in_order(rows, "no such column")] == ["a", "b", "c"]


def test_the_grid_has_hosts_by_worker_id_and_the_missing_ones_of_new_slices() -> None:
    """Host 10 comes after host 2."""
    names = {SCALE_GROUP: "tpu"}
    rows = [row_of(a_view(f"s1-w-{worker}", slice_id="s1", attributes=names)) for worker in (10, 2)]
    new = a_slice_of(a_group(), "s2", SliceState.BOOTSTRAPPING)
    (group,) = grid(rows, [(new, 4)])

    assert (group.group, group.hosts) == ("tpu", 2)
    assert [row.id for row in group.slices[0].hosts] == ["s1-w-2", "s1-w-10"]
    assert (group.slices[1].state, group.slices[1].missing) == ("BOOTSTRAPPING", 4)


def test_the_job_of_a_task_is_its_id_without_the_index() -> None:
    """A gang has the id of its job."""
    assert [job_of(text) for text in ("ada/x:3", "ada/x", "ada/x/y:0")] == [
        "ada/x",
        "ada/x",
        "ada/x/y",
    ]
