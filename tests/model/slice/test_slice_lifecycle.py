"""The lifecycle of a slice: the whole table, deadlines, and transcripts of whole lifecycles."""

import shlex
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, get_args

import pytest

from iris.messages.slice import SliceInput
from iris.model.errors import IllegalMove
from iris.model.host.hosts import Host
from iris.model.slice import events
from iris.model.slice.keys import public_key, sign
from iris.model.slice.lifecycle import TABLE, deadline, step
from iris.model.slice.provisioning import (
    CreateOutcome,
    MachineState,
    SliceFault,
    SliceObservation,
    SliceRequest,
)
from iris.model.slice.record import MAX_STEPS, SliceRecord, with_last_line
from iris.model.slice.scaling import Drain
from iris.model.slice.status import SliceState
from iris.model.units import GIB
from tests.builders import a_host, at, some
from tests.scaling_world import a_group
from tests.transcript import check, transcripts

S = SliceState
REQUEST = SliceRequest(
    slice_id="s1", cluster="c", zone="europe-west4-a", token="secret", group=a_group(hosts=2)
)
DRAIN = Drain(slice_id="s1", reason="drained by ada")
#: Private keys.
KEY, OTHER_KEY = "01" * 32, "02" * 32
ASKED = events.RetireHosts(DRAIN)
ENDING = {S.FAILED, S.DELETING, S.DELETED}
LIVE = {S.PROVISIONING, S.BOOTSTRAPPING, S.READY, S.DRAINING}


def reported_by(host: Host, key: str = KEY) -> events.HostReported:
    """The report of a host that signs with this key; an empty key: an unsigned report."""
    host = host.model_copy(update={"slice_id": "s1"})
    return events.HostReported(host, sign(key, host) if key else "")


def seen(state: MachineState = MachineState.ACTIVE, reason: str = "") -> SliceObservation:
    return SliceObservation(
        slice_id="s1", group="tpu", zone=REQUEST.zone, state=state, reason=reason
    )


def a_record(state: SliceState = S.REQUESTED, **changes: Any) -> SliceRecord:
    """A slice of two hosts that was created, and whose key the platform has reported."""
    settings: dict[str, Any] = {
        "cluster": "c",
        "id": "s1",
        "size": 2,
        "request": REQUEST,
        "public_key": public_key(KEY),
        "state": state,
        "drain": DRAIN,
    }
    return SliceInput(**settings | changes).record(at(0))


#: One event of each kind, and the states in which it may arrive. Written down a second time: the
#: two must agree.
ARRIVES: list[tuple[events.Event, set[SliceState]]] = [
    (events.WorkflowStarted(), {S.REQUESTED, *LIVE, S.DELETING}),
    (events.RequestAnswered(CreateOutcome(observation=seen())), {S.REQUESTED}),
    (events.RequestAbandoned(), {S.REQUESTED}),
    (reported_by(a_host("h1")), LIVE | ENDING),
    (events.HostsOffered(), LIVE - {S.PROVISIONING}),
    (events.HostGone("h1", "first", "host h1 has not reported"), LIVE | ENDING),
    (events.HostMissing(), LIVE),
    (events.MachinesListed(seen(MachineState.PREEMPTED), at(0)), LIVE | ENDING),
    (events.MachinesDescribed(None, at(0)), LIVE),
    (events.NotDescribed(overdue=True), LIVE),
    (events.DeadlineReached(at(0)), LIVE),
    (events.ConsoleRead("no such image"), {S.PROVISIONING, S.BOOTSTRAPPING}),
    (DRAIN, LIVE | ENDING),
    (events.RetireAnswered(ASKED, at(0)), {S.READY, S.DRAINING}),
    (events.Cancelled(), set(S)),
    (events.HostsRemoved(), set(S) - {S.DELETED}),
    (events.MachinesDeleted(), {S.DELETING}),
]
#: The effects whose result is the next event.
WITH_RESULT = (
    events.RequestMachines,
    events.DescribeMachines,
    events.ReadConsole,
    events.OfferHosts,
    events.RetireHosts,
)


def test_the_table_has_a_row_for_every_state_and_an_entry_for_every_kind_of_event() -> None:
    """An event without an entry would stop the workflow."""
    kinds = {type(event) for event, _ in ARRIVES}

    assert set(TABLE) == set(S)
    assert {kind for row in TABLE.values() for kind in row} == set(get_args(events.Event)) == kinds


@pytest.mark.parametrize(
    ("event", "arrives"),
    [pytest.param(event, states, id=type(event).__name__) for event, states in ARRIVES],
)
def test_an_event_is_illegal_in_the_states_in_which_it_does_not_arrive(
    event: events.Event, arrives: set[SliceState]
) -> None:
    """An illegal event raises and changes nothing."""
    for state in set(S) - arrives:
        before = a_record(state)
        with pytest.raises(IllegalMove):
            step(before, event, at(1))
        assert before == a_record(state)


@pytest.mark.parametrize(
    ("event", "state"),
    [
        pytest.param(event, state, id=f"{type(event).__name__}-{state}")
        for event, states in ARRIVES
        for state in sorted(states)
    ],
)
def test_an_event_that_arrives_is_handled_and_shown(event: events.Event, state: SliceState) -> None:
    """After the decision to delete a slice, reports change nothing."""
    before = a_record(state)
    after, effects = step(before, event, at(1))
    assert not any(isinstance(effect, WITH_RESULT) for effect in effects[:-1]), (
        "only the last effect may have a result"
    )
    if after.state is not state:
        assert (after.facts.changed_at, after.steps[-1].state) == (at(1), after.state)
        assert isinstance(effects[0], events.ShowState), "every change of state is shown"
        assert any(isinstance(effect, events.ReportFacts) for effect in effects), "and reported"
    if state in ENDING and not isinstance(
        event, (events.Cancelled, events.HostsRemoved, events.MachinesDeleted)
    ):
        assert (after, effects) == (before, ())


@pytest.mark.parametrize(
    ("state", "check_at", "repair_until", "when"),
    [
        (S.PROVISIONING, 0, None, 300),
        (S.PROVISIONING, 400, None, 400),
        (S.BOOTSTRAPPING, 400, None, 600),
        (S.BOOTSTRAPPING, 0, 500, 500),
        (S.BOOTSTRAPPING, 0, 900, 600),
        (S.READY, 7, None, None),
        (S.READY, 7, 900, 900),
        (S.DRAINING, 7, 900, 7),
        (S.DELETING, 7, 900, None),
    ],
)
def test_a_slice_without_events_has_the_deadline_of_its_state_or_of_its_repair(
    state: SliceState, check_at: float, repair_until: float | None, when: float | None
) -> None:
    """A deadline too early deletes machines that were about to be usable; a missing one pays for
    dead machines forever.
    """
    until = None if repair_until is None else at(repair_until)
    slice = replace(a_record(state), check_at=at(check_at)).with_facts(repair_until=until)

    assert deadline(slice) == (None if when is None else at(when))


def test_a_ready_slice_reports_what_each_of_its_hosts_offers() -> None:
    """The autoscaler plans with it. The reserved memory stays with the system, although the agent
    finds it.
    """
    group = REQUEST.group.model_copy(
        update={"resources": some(cpu=8, memory=32), "reserved_memory": 2 * GIB}
    )
    slice = a_record(
        S.BOOTSTRAPPING, request=REQUEST.model_copy(update={"group": group}), drain=None
    )
    for name, offers in (
        ("h1", some(cpu=8, memory=31, disk=40)),
        ("h2", some(cpu=8, memory=29, disk=50)),
    ):
        slice, _ = step(slice, reported_by(a_host(name, offers)), at(0))

    slice, _ = step(slice, events.HostsOffered(), at(1))

    assert [host.resources.memory_bytes // GIB for host in slice.hosts] == [30, 29]
    assert slice.facts.offers == some(cpu=8, memory=29, disk=40)


def reported(slice: SliceRecord, host: str, key: str) -> SliceRecord:
    """The slice after a report that is signed with this key, or unsigned."""
    return step(slice, reported_by(a_host(host), key), at(0)).slice


def test_a_slice_accepts_reports_that_are_signed_with_its_key_and_no_others() -> None:
    """The request's token is public: everybody who sees the Web UI could present it."""
    slice = a_record(S.PROVISIONING)
    slice = reported(reported(reported(slice, "h1", KEY), "h2", OTHER_KEY), "h3", "")

    assert [host.id for host in slice.hosts] == ["h1"]
    assert slice.refused == {"h2", "h3"}


def test_a_slice_decides_on_reports_when_the_platform_has_reported_its_key() -> None:
    """An agent may be quicker than the platform's list. It reports again, while a refused one would
    stop for ever.
    """
    early = a_record(S.PROVISIONING, public_key="")
    assert reported(reported(early, "h1", KEY), "h2", "") == early

    listed = seen(MachineState.CREATING).model_copy(update={"public_key": public_key(KEY)})
    slice = step(early, events.MachinesListed(listed, at(0)), at(0)).slice
    assert [host.id for host in reported(slice, "h1", KEY).hosts] == ["h1"]
    assert SliceInput.of(slice, ()).record(at(0)).public_key == public_key(KEY), (
        "after continue-as-new too"
    )


def test_a_slice_that_joined_has_no_deadline() -> None:
    """Its machines are not Iris's to delete."""
    assert deadline(a_record(S.BOOTSTRAPPING, request=None)) is None


def test_a_reason_has_one_line() -> None:
    """Tables show it."""
    assert with_last_line("late", "first\nlast\n") == "late; last output of its machines: last"
    assert with_last_line("late", " \n") == "late"


def test_why_machines_are_not_there_yet_is_a_step_of_the_slice() -> None:
    """Its user sees it in `iris slice show`. A list that says the same again adds nothing."""
    slice = a_record(S.PROVISIONING)
    for why in (
        "its disk is full",
        "",
        "its disk is full",
        "the disk of the control plane is full",
    ):
        listed = events.MachinesListed(seen(MachineState.CREATING, why), at(1))
        slice = step(slice, listed, at(1)).slice

    assert [each.reason for each in slice.steps[1:]] == [
        "its disk is full",
        "the disk of the control plane is full",
    ]


def test_only_the_latest_steps_are_kept() -> None:
    """The next run and every answer to the query carry them."""
    slice = a_record(S.READY)
    for number in range(MAX_STEPS + 1):
        slice = slice.noted(f"note {number}", at(number))

    assert [each.reason for each in slice.steps] == [
        f"note {number + 1}" for number in range(MAX_STEPS)
    ]


def test_the_next_run_starts_with_the_same_slice() -> None:
    """A slice is older than its history: what is lost between two runs is lost for good."""
    slice = a_record(S.BOOTSTRAPPING, adopted=True, hosts=(a_host("h1"),), last_words="booted")
    slice, _ = step(
        slice, events.MachinesListed(seen(MachineState.REPAIRING, "maintenance"), at(5)), at(5)
    )

    assert SliceInput.of(slice, ()).record(slice.check_at) == slice


@pytest.mark.parametrize("drift", [-1, 1])
def test_what_is_due_next_in_a_drain_does_not_depend_on_the_clock_of_the_workflow(
    drift: float,
) -> None:
    """A replay has another clock. The end of a repair and the next check of the drain lead to
    different commands.
    """
    repairing = events.MachinesListed(seen(MachineState.REPAIRING), at(5))

    def due(drift: float) -> tuple[datetime | None, datetime | None]:
        slice = a_record(S.READY, drain=None, hosts=(a_host("h1"),))
        slice = step(slice, repairing, at(5)).slice
        slice = step(slice, DRAIN, at(6)).slice
        slice = step(
            slice, events.RetireAnswered(ASKED, at(7), "host h1 runs"), at(7 + drift)
        ).slice
        checked = deadline(slice)
        slice = step(slice, events.NotDescribed(overdue=True), at(8 + drift)).slice
        return checked, deadline(slice)

    assert due(drift) == due(0)


# -- transcripts
# --------------------------------------------------------------------------------------------------


class Lifecycle:
    """A slice of two hosts, driven by the commands of a transcript. Each prints the change of state
    and the effects.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.slice = a_record(drain=None)
        #: The last request to the scheduler.
        self.asked = ASKED

    def execute(self, line: str) -> str:
        command, *words = shlex.split(line)
        run: Callable[..., str] = getattr(self, f"do_{command}")
        return run(*words)

    # Preparation and time.

    def do_slice(self, *kinds: str) -> str:
        """`slice [joined|adopted|ready]`: another kind of slice."""
        changes = {"request": None} if "joined" in kinds else {"adopted": "adopted" in kinds}
        self.slice = a_record(drain=None, **changes)
        for command in (
            ("start", "accept ACTIVE", "report h1", "report h2", "offered")
            if "ready" in kinds
            else ()
        ):
            self.execute(command)
        return ""

    def do_at(self, seconds: str) -> str:
        """`at SECONDS`: the time from now on."""
        self.now = float(seconds)
        return ""

    def do_deadline(self) -> str:
        """`deadline`: lets time pass until the slice's deadline."""
        due = deadline(self.slice)
        if due is None:
            return "none"
        self.now = (due - at(0)).total_seconds()
        return "\n".join([f"at {self.now:g}", self._step(events.DeadlineReached(due))])

    def do_status(self) -> str:
        """`status`: what the query shows."""
        status = self.slice.status
        hosts = ", ".join(f"{host.id} {host.incarnation}" for host in status.hosts) or "none"
        refused = [f"refused: {', '.join(status.refused)}"] if status.refused else []
        ended = [f"ended: {', '.join(map(' '.join, status.ended))}"] if status.ended else []
        return "\n".join([f"{status.state}: {status.reason}", f"hosts: {hosts}", *refused, *ended])

    # Events.

    def do_start(self) -> str:
        return self._step(events.WorkflowStarted())

    def do_accept(self, state: str, reason: str = "") -> str:
        """`accept MACHINE_STATE [REASON]`: the platform accepts the request."""
        return self._step(
            events.RequestAnswered(CreateOutcome(observation=seen(MachineState(state), reason)))
        )

    def do_refuse(self, fault: str, reason: str) -> str:
        """`refuse FAULT REASON`: the platform refuses the request."""
        return self._step(
            events.RequestAnswered(CreateOutcome(fault=SliceFault(fault), reason=reason))
        )

    def do_abandon(self) -> str:
        return self._step(events.RequestAbandoned())

    def do_report(self, host: str, incarnation: str = "first", key: str = "own") -> str:
        """`report HOST [INCARNATION [own|another]]`: an agent is ready, and signs with a key."""
        keys = {"own": KEY, "another": OTHER_KEY}
        if self.slice.request is None:
            return self._step(events.HostReported(a_host(host, incarnation=incarnation)))
        return self._step(reported_by(a_host(host, incarnation=incarnation), keys[key]))

    def do_offered(self, *ended: str) -> str:
        """`offered [HOST ...]`: the scheduler has the hosts, except these, whose incarnations have
        ended.
        """
        return self._step(events.HostsOffered(tuple((host, "first") for host in ended)))

    def do_lose(self, host: str, reason: str = "") -> str:
        """`lose HOST [REASON]`: a host no longer reports."""
        return self._step(events.HostGone(host, "first", reason))

    def do_list(self, state: str, reason: str = "") -> str:
        """`list MACHINE_STATE|missing [REASON]`: a change in the platform's list."""
        return self._step(
            events.MachinesListed(
                None if state == "missing" else seen(MachineState(state), reason), at(self.now)
            )
        )

    def do_describe(self, state: str, *overdue: str) -> str:
        """`describe MACHINE_STATE|missing|silent [overdue]`: the platform's answer about this
        slice.
        """
        if state == "silent":
            return self._step(events.NotDescribed(bool(overdue)))
        return self._step(
            events.MachinesDescribed(
                None if state == "missing" else seen(MachineState(state)),
                at(self.now),
                bool(overdue),
            )
        )

    def do_console(self, output: str) -> str:
        return self._step(events.ConsoleRead(output.replace("\\n", "\n")))

    def do_drain(self, reason: str, idle: str = "", deadline: str = "") -> str:
        """`drain REASON [IDLE_SINCE] [DEADLINE]`, both in seconds; '' for none."""
        times = {"idle_since": _time(idle), "deadline": _time(deadline)}
        return self._step(Drain(slice_id="s1", reason=reason, **times))

    def do_retired(self, problem: str = "", time: str = "") -> str:
        """`retired [PROBLEM] [TIME]`: the scheduler's answer, with its time in seconds."""
        answered_at = _time(time) or max(self.asked.due or at(0), at(self.now))
        return self._step(events.RetireAnswered(self.asked, answered_at, problem))

    def do_cancel(self) -> str:
        return self._step(events.Cancelled())

    def do_removed(self) -> str:
        return self._step(events.HostsRemoved())

    def do_deleted(self) -> str:
        return self._step(events.MachinesDeleted())

    def _step(self, event: events.Event) -> str:
        before = self.slice
        try:
            self.slice, effects = step(before, event, at(self.now))
        except IllegalMove as error:
            return f"error: {error}"
        changes = [f"{each.state}: {each.reason}" for each in self.slice.steps[len(before.steps) :]]
        if not changes and self.slice.facts.reason != before.facts.reason:
            changes = [f"{self.slice.state}: {self.slice.facts.reason}"]
        return (
            "\n".join([*changes, *(f"  {self._shown(effect)}" for effect in effects)]) or "nothing"
        )

    def _shown(self, effect: events.Effect) -> str:
        match effect:
            case events.ShowState(state=state):
                return f"show {state}"
            case events.ReportFacts(facts=facts):
                return f"report {facts.state}" + (f" {facts.fault}" if facts.fault else "")
            case events.RequestMachines(request=request):
                return f"request machines of {request.group.name} in {request.zone}"
            case events.DescribeMachines(overdue=overdue):
                return "describe machines" + (", overdue" if overdue else "")
            case events.ReadConsole():
                return "read console"
            case events.OfferHosts(hosts=hosts):
                return "offer " + ", ".join(f"{host.id} {host.incarnation}" for host in hosts)
            case events.RetireHosts(drain=drain):
                self.asked = effect
                condition = (
                    f" if idle since {drain.idle_since:%H:%M:%S}" if drain.idle_since else ""
                )
                return f"retire hosts{condition}" + (", evict" if effect.evicts else "")


def _time(seconds: str) -> datetime | None:
    return at(float(seconds)) if seconds else None


@pytest.mark.parametrize("path", transcripts("slice"), ids=lambda path: path.stem)
def test_a_lifecycle_is_as_its_transcript_says(path: Path) -> None:
    """Each transcript is one scenario, with every effect in its order."""
    check(path, Lifecycle().execute)
