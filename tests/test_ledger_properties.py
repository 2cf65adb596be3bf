"""The scheduler's book under everything that delivery can do to its messages.

What is known of delivery: every message comes at least once, any message may come again at any time, and asks and releases may
overtake each other. A slice speaks in order (its word of a host's next life follows that of the one before), but any of its words
may be repeated later. At any moment the book may be written down and read again, as continue-as-new does.
"""

from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from iris.jobs import Band
from iris.ledger import Ledger, LedgerState
from iris.refusals import RefusalCode
from iris.resources import Resources
from tests.builders import a_host, a_request, at, some

Message = Callable[[Ledger], None]

#: Three machines in two slices: one of each kind.
MACHINES = {
    "cpu": ("s1", some(cpu=2, memory=4, disk=10)),
    "gpu": ("s1", some(cpu=4, memory=4, disk=10, device="gpu:H100:4")),
    "tpu": ("s2", some(cpu=2, memory=2, disk=10, device="tpu:v5litepod-4:4")),
}
SHAPES = (
    some(cpu=1),
    some(cpu=0.5, memory=3),
    some(cpu=1, device="gpu:H100:2"),
    some(cpu=1, memory=1, device="tpu:auto:4"),
    some(cpu=0, disk=7),
    some(cpu=1, device="gpu:A100:1"),
    some(cpu=64),
)


class Delivery(RuleBasedStateMachine):
    """Jobs, slices and a post that repeats and reorders, against one book."""

    messages = Bundle("messages")
    unreleased = Bundle("unreleased")

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger()
        self.lives = dict.fromkeys(MACHINES, 0)
        self.sent_keys = 0
        #: What the book has been told, kept here a second time as plain sets.
        self.asked: dict[str, Message] = {}
        self.released: set[str] = set()
        self.ended: set[tuple[str, str]] = set()
        self.orphaned: set[str] = set()

    # What jobs do.

    @rule(target=unreleased, shape=st.sampled_from(SHAPES), band=st.sampled_from(Band), second=st.integers(0, 3))
    def a_job_asks(self, shape: Resources, band: Band, second: int) -> tuple[str, Message]:
        self.sent_keys += 1
        key = f"k{self.sent_keys}"
        request = a_request(key, wants=shape, band=band, submitted_at=at(second))

        def ask(ledger: Ledger) -> None:
            ledger.ask(request)
            self.asked[key] = ask
            self.orphaned.discard(key)

        return key, ask

    @rule(target=messages, sent=unreleased)
    def its_ask_is_posted(self, sent: tuple[str, Message]) -> Message:
        return sent[1]

    @rule(target=messages, sent=consumes(unreleased))
    def it_releases_or_withdraws(self, sent: tuple[str, Message]) -> Message:
        key, ask = sent

        def release(ledger: Ledger) -> None:
            ledger.forget(key)
            self.released.add(key)

        return multiple(ask, release)

    # What slices do.

    @initialize(target=messages)
    def all_machines_come_up(self) -> Message:
        return multiple(*[self._comes_up(machine) for machine in MACHINES])

    @rule(target=messages, machine=st.sampled_from(sorted(MACHINES)))
    def a_machine_starts_a_new_life(self, machine: str) -> Message:
        return self._comes_up(machine)

    @rule(target=messages, machine=st.sampled_from(sorted(MACHINES)))
    def a_machine_dies(self, machine: str) -> Message:
        incarnation = f"life {self.lives[machine]}"

        def lost(ledger: Ledger) -> None:
            self._ends(machine, incarnation)
            ledger.host_lost(machine, incarnation)

        return lost

    @rule(target=messages, slice_id=st.sampled_from(["s1", "s2"]))
    def a_slice_goes_down(self, slice_id: str) -> Message:
        lives = [(host.id, host.incarnation) for host in self.ledger.hosts.values() if host.slice_id == slice_id]

        def down(ledger: Ledger) -> None:
            for machine, incarnation in lives:
                self._ends(machine, incarnation)
            ledger.slice_down(lives)

        down(self.ledger)
        return down

    # What the post, the server and the scheduler do.

    @rule(message=messages)
    def any_message_arrives_once_more(self, message: Message) -> None:
        message(self.ledger)

    @rule(batch=st.lists(messages, max_size=6))
    def a_batch_arrives_and_a_pass_follows(self, batch: list[Message]) -> None:
        for message in batch:
            message(self.ledger)
        self._settle()

    @rule()
    def a_pass_runs(self) -> None:
        self._settle()

    @rule()
    def the_scheduler_continues_as_new(self) -> None:
        before = self.ledger
        self.ledger = Ledger(LedgerState.model_validate_json(before.state().model_dump_json()))
        assert self.ledger.settle() == before.settle(), "the next run decides otherwise than this one would have"

    @rule()
    def everybody_gives_up_and_every_ask_arrives_once_more(self) -> None:
        for key in self.asked:
            self.ledger.forget(key)
            self.released.add(key)
        for ask in list(self.asked.values()):
            ask(self.ledger)
        self._settle()
        assert not self.ledger.live, "somebody still holds something"
        assert not self.ledger.queue, "somebody still waits"

    # What has to hold, always.

    @invariant()
    def no_host_is_given_away_twice(self) -> None:
        for host in self.ledger.hosts.values():
            held = [each.resources for each in self.ledger.live.values() if each.host_id == host.id]
            offered = host.resources
            assert sum(each.cpu_millis for each in held) <= offered.cpu_millis
            assert sum(each.memory_bytes for each in held) <= offered.memory_bytes
            assert sum(each.disk_bytes for each in held) <= offered.disk_bytes
            assert sum(each.device.count for each in held if each.device) <= (offered.device.count if offered.device else 0)

    @invariant()
    def nobody_waits_and_holds(self) -> None:
        assert not self.ledger.live.keys() & self.ledger.queue.keys()

    @invariant()
    def what_was_given_back_stays_given_back(self) -> None:
        assert not self.released & (self.ledger.live.keys() | self.ledger.queue.keys())

    @invariant()
    def nothing_is_placed_on_a_host_that_is_gone_or_in_a_life_that_is_over(self) -> None:
        there = {(host.id, host.incarnation) for host in self.ledger.hosts.values()}
        used = {(placement.host_id, placement.incarnation) for placement in self.ledger.live.values()}
        assert used <= there
        assert not there & self.ended

    @invariant()
    def nobody_who_asked_is_forgotten(self) -> None:
        known = self.ledger.live.keys() | self.ledger.queue.keys()
        assert self.asked.keys() - self.released - self.orphaned <= known

    @invariant()
    def every_key_has_an_explanation(self) -> None:
        for key in self.asked:
            refusal = self.ledger.explain(key)
            assert refusal.message
            assert (refusal.code is RefusalCode.UNKNOWN) is (key not in self.ledger.queue)

    # The story's own book-keeping.

    def _comes_up(self, machine: str) -> Message:
        self.lives[machine] += 1
        slice_id, offers = MACHINES[machine]
        host = a_host(machine, offers, slice_id=slice_id, incarnation=f"life {self.lives[machine]}")

        def up(ledger: Ledger) -> None:
            before = ledger.hosts.get(machine)
            if before is not None and before.incarnation != host.incarnation and (host.id, host.incarnation) not in self.ended:
                self._ends(before.id, before.incarnation)
            ledger.hosts_up([host])

        up(self.ledger)
        return up

    def _ends(self, host_id: str, incarnation: str) -> None:
        """A life is about to be over; what is placed there loses its host and has to ask again."""
        self.ended.add((host_id, incarnation))
        for key, placement in self.ledger.live.items():
            if (placement.host_id, placement.incarnation) == (host_id, incarnation):
                self.orphaned.add(key)

    def _settle(self) -> None:
        """One pass; whoever is left after it waits for a reason that is not "there is room"."""
        waiting = set(self.ledger.queue)
        placed = {placement.key for placement in self.ledger.settle()}
        assert placed <= waiting
        assert self.ledger.queue.keys() == waiting - placed
        assert RefusalCode.QUEUED not in {self.ledger.explain(key).code for key in self.ledger.queue}


# Each example is a story of up to fifty steps.
TestDelivery = Delivery.TestCase
TestDelivery.settings = settings(max_examples=300, stateful_step_count=50, deadline=None, print_blob=True)
