"""The fake Google keeps its invariants under any sequence of calls: its audit log matches, and no
limit is exceeded.
"""

import tempfile
from pathlib import Path
from typing import Any

from google.cloud.tpu_v2.types import cloud_tpu
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.fakes.google import nodes
from tests.fakes.google.callers import a_node, a_queued, location
from tests.fakes.google.cloud import Cloud
from tests.fakes.google.control import Control
from tests.fakes.google.process import settle
from tests.fakes.google.records import NODE, QUEUED, key
from tests.fakes.google.refusals import Refusal
from tests.fakes.google.tpu_api import TpuApi
from tests.strategies import examples

PROJECT, ZONE = "project-1", "europe-west4-b"
#: Slices of a kind that the zone can hold, and chips that the project may have.
ROOM, QUOTA = 2, 48
NAMES = st.sampled_from(["n1", "n2", "n3", "n4"])
QUEUED_NAMES = st.sampled_from(["q1", "q2"])


class Lives(RuleBasedStateMachine):
    """Creates, deletes, preemptions and deaths of the process, in any order."""

    @initialize()
    def begin(self) -> None:
        self.directory = tempfile.TemporaryDirectory()
        self.cloud = Cloud(Path(self.directory.name))
        self.cloud.knobs.capacity = [(ZONE, "v5litepod-16", "*", "*", ROOM)]
        self.cloud.knobs.quota = [("v5litepod", "*", "europe-west4", "*", QUOTA)]
        self.cloud.clock.run(0)  # time passes when a rule says so
        self.cloud.turned()
        self.asked: set[str] = set()

    def call(self, method: str, message: Any) -> bool:
        """Whether the call was not refused."""
        settle(self.cloud)
        try:
            getattr(TpuApi(self.cloud), method)(type(message).pb(message))
        except Refusal:
            return False
        finally:
            self.cloud.flush()
        return True

    def name(self, kind: str, name: str) -> str:
        return f"{location(PROJECT)}/{'nodes' if kind == NODE else 'queuedResources'}/{name}"

    @rule(name=NAMES, spot=st.booleans())
    def create(self, name: str, spot: bool) -> None:
        there = self.cloud.get(key(NODE, PROJECT, ZONE, name)) is not None
        request = cloud_tpu.CreateNodeRequest(
            parent=location(PROJECT), node_id=name, node=a_node(spot=spot)
        )
        if self.call("create_node", request):
            assert not there
            self.asked.add(self.name(NODE, name))

    @rule(name=QUEUED_NAMES)
    def queue(self, name: str) -> None:
        asked = a_queued(PROJECT, name, spot={})
        request = cloud_tpu.CreateQueuedResourceRequest(
            parent=location(PROJECT), queued_resource_id=name, queued_resource=asked
        )
        if self.call("create_queued_resource", request):
            self.asked |= {self.name(QUEUED, name), self.name(NODE, name)}

    @rule(name=NAMES | QUEUED_NAMES)
    def delete(self, name: str) -> None:
        there = self.cloud.get(key(NODE, PROJECT, ZONE, name))
        accepted = self.call("delete_node", cloud_tpu.DeleteNodeRequest(name=self.name(NODE, name)))
        assert not accepted or there is not None

    @rule(name=QUEUED_NAMES, force=st.booleans())
    def unqueue(self, name: str, force: bool) -> None:
        self.call(
            "delete_queued_resource",
            cloud_tpu.DeleteQueuedResourceRequest(name=self.name(QUEUED, name), force=force),
        )

    @rule(name=NAMES | QUEUED_NAMES, notice=st.sampled_from([0.0, 30.0]))
    def preempt(self, name: str, notice: float) -> None:
        node = self.cloud.get(key(NODE, PROJECT, ZONE, name))
        if node is not None and node.state in ("CREATING", "READY"):
            nodes.preempt(self.cloud, node, notice)
            self.cloud.flush()

    @rule(name=NAMES)
    def vanish(self, name: str) -> None:
        node = self.cloud.get(key(NODE, PROJECT, ZONE, name))
        if node is not None:
            self.cloud.remove(node, "vanished")
            self.cloud.flush()

    @rule(seconds=st.sampled_from([0.05, 0.2, 0.5, 40.0]))
    def wait(self, seconds: float) -> None:
        self.cloud.clock.advance(seconds)
        self.cloud.turned()
        settle(self.cloud)

    @rule()
    def die(self) -> None:
        before = self.cloud
        self.cloud = Cloud(Path(self.directory.name))
        assert self.cloud.resources == before.resources
        assert self.cloud.operations == before.operations
        assert self.cloud.audit == before.audit

    @invariant()
    def the_books_balance(self) -> None:
        settle(self.cloud)
        wrong = Control(self.cloud, None, lambda: None).check()
        assert [each for each in wrong if "without its queued resource" not in each] == []

    @invariant()
    def nothing_is_there_that_nobody_asked_for(self) -> None:
        assert {each.path for each in self.cloud.resources.values()} <= self.asked

    @invariant()
    def the_zone_is_not_overfull(self) -> None:
        assert sum(each.fills() for each in self.cloud.resources.values()) <= ROOM

    @invariant()
    def nobody_has_more_than_the_quota(self) -> None:
        own = [each for each in self.cloud.resources.values() if not each.owner]
        assert sum(each.units for each in own) <= QUOTA

    @invariant()
    def what_is_queued_and_active_has_its_node(self) -> None:
        for queued in [
            each
            for each in self.cloud.resources.values()
            if each.kind == QUEUED and each.state == "ACTIVE"
        ]:
            assert nodes.nodes_of(self.cloud, queued)

    def teardown(self) -> None:
        """In the end everything can be deleted."""
        for queued in [
            each
            for each in self.cloud.resources.values()
            if each.kind == QUEUED and each.state != "DELETING"
        ]:
            assert self.call(
                "delete_queued_resource",
                cloud_tpu.DeleteQueuedResourceRequest(name=queued.path, force=True),
            )
        for node in [
            each
            for each in self.cloud.resources.values()
            if each.kind == NODE and each.state != "DELETING"
        ]:
            assert self.call("delete_node", cloud_tpu.DeleteNodeRequest(name=node.path))
        for _ in range(20):
            self.cloud.clock.advance(1.0)
            settle(self.cloud)
        assert self.cloud.resources == {}
        self.directory.cleanup()


TestLives = Lives.TestCase
TestLives.settings = settings(max_examples=examples(60), stateful_step_count=30, deadline=None)
