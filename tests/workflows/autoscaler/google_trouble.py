"""Random faults of Google, for tests that do not choose when each fault happens."""

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.fakes.google.client import FakeGoogle

#: Calls by what they do.
CREATES = ("CreateNode", "CreateQueuedResource", "instances.insert")
DELETES = ("DeleteNode", "DeleteQueuedResource", "instances.delete")
LOOKS = (
    "GetNode",
    "GetQueuedResource",
    "ListNodes",
    "ListQueuedResources",
    "instances.get",
    "instances.aggregatedList",
)
#: What calls are refused with, and the details of that.
STORMS = (("429", "rate"), ("503", ""), ("500", ""), ("401", ""))
#: What quotas are of.
FAMILIES = (("v5litepod", "spot"), ("v6e", "on-demand"), ("n2", "spot"))
TYPES = ("v5litepod-16", "v5litepod-8", "v6e-8", "n2-standard-8")
#: Of versions to come.
NEW_STATES = ("99", "UNHEARD_OF")
#: States in which something ends or is stuck.
NODE_STATES = ("STOPPED", "UNKNOWN", "TERMINATED", "REPAIRING", NEW_STATES[0])
INSTANCE_STATES = ("TERMINATED", "SUSPENDED", "REPAIRING", NEW_STATES[1])
#: Seconds of Google's from a create to the machines, and from a delete to the end, when nothing is
#: wrong.
BOOT, DELETE = 60, 20
#: So many rounds of trouble that does not end by itself lasts, at the most.
LASTS = 5


class Trouble:
    """What goes wrong for a project. Every method `fault_…` is something that may."""

    def __init__(
        self, google: FakeGoogle, project: str, zones: tuple[str, ...], dice: random.Random
    ) -> None:
        self._google, self._project, self._zones, self._dice = google, project, zones, dice
        self._round = 0
        self._ends: list[tuple[int, Callable[[], object]]] = []
        #: What has happened, and how often.
        self.happened: Counter[str] = Counter()
        self.calm()

    def goes_wrong(self, *kinds: str) -> None:
        """One thing: of these kinds, or of all; loss of machines more often than anything else."""
        among = kinds or tuple(
            each.removeprefix("fault_") for each in dir(self) if each.startswith("fault_")
        )
        weights = [5 if each in ("preempt", "vanish", "breaks") else 1 for each in among]
        (kind,) = self._dice.choices(among, weights)
        getattr(self, f"fault_{kind}")()
        self.happened[kind] += 1

    def passes(self) -> None:
        """A round is over: what lasted until now ends."""
        self._round += 1
        for end in [end for until, end in self._ends if until <= self._round]:
            end()
        self._ends = [each for each in self._ends if each[0] > self._round]

    def calm(self) -> None:
        """Nothing goes wrong any more."""
        for _, end in self._ends:
            end()
        self._ends = []
        self._google.clear()
        self._google.page_size(500)
        self._google.stale_lists()
        self._usual_times()

    # -- what happens to what there is

    def fault_preempt(self) -> None:
        notice = self._dice.choice([0, 30])
        self._to_one(lambda path: self._google.preempt(path, notice))

    def fault_vanish(self) -> None:
        self._to_one(lambda path: self._google.node(path, vanish=True))

    def fault_breaks(self) -> None:
        kind, states = self._dice.choice([("node", NODE_STATES), ("instance", INSTANCE_STATES)])
        self._to_one(lambda path: self._google.node(path, state=self._dice.choice(states)), kind)

    def fault_suspended(self) -> None:
        self._to_one(
            lambda path: self._google.queued(path, self._dice.choice(["SUSPENDED", "FAILED"])),
            "queued",
        )

    def fault_reboot(self) -> None:
        self._to_one(lambda path: self._google.reboot(path, readdress=True))

    def _to_one(self, does: Callable[[str], None], *kinds: str) -> None:
        """To anything that there is, in whatever state; it may go before it is reached."""
        there = [
            each
            for each in self._google.resources(self._project)
            if self._is_fair(each, kinds or ("node", "instance"))
        ]
        if not there:
            return
        try:
            does(self._dice.choice(there)["path"])
        except RuntimeError as error:
            if "there is no" not in str(error):
                raise

    def _is_fair(self, each: dict[str, Any], kinds: tuple[str, ...]) -> bool:
        return each["kind"] in kinds and not each["foreign"]

    # -- what there is not, or is not allowed

    def fault_stock_out(self) -> None:
        zone, kind = self._dice.choice(self._zones), self._dice.choice(TYPES)
        self._google.capacity(zone, kind, 0, project=self._project)
        self._until_later(lambda: self._google.capacity(zone, kind, None, project=self._project))

    def fault_quota(self) -> None:
        (family, tier), units = self._dice.choice(FAMILIES), self._dice.choice([0, 40, 80])
        region = self._zones[0].rpartition("-")[0]
        self._google.quota(family, tier, region, units, project=self._project)
        self._until_later(
            lambda: self._google.quota(family, tier, region, None, project=self._project)
        )

    def fault_zone_down(self) -> None:
        zone = self._dice.choice(self._zones)
        self._google.zone_down(zone)
        self._until_later(lambda: self._google.zone_down(zone, False))

    def fault_slow(self) -> None:
        self._google.boot_time(self._dice.choice([30, 120, 900]))
        self._google.delete_time(self._dice.choice([5, 60, 400]))
        self._until_later(self._usual_times)

    def _until_later(self, end: Callable[[], object]) -> None:
        self._ends.append((self._round + self._dice.randint(1, LASTS), end))

    def _usual_times(self) -> None:
        self._google.boot_time(BOOT)
        self._google.delete_time(DELETE)

    # -- what calls and operations come to

    def fault_storm(self) -> None:
        status, details = self._dice.choice(STORMS)
        if self._dice.random() < 0.5:
            self._google.fail("*", status, times=self._dice.randint(1, 15), details=details)
        else:  # nothing calls a method of its own so often that more would be over soon
            self._google.fail(
                self._method(), status, times=self._dice.randint(1, 4), details=details
            )

    def fault_refused(self) -> None:
        self._google.fail(self._method(CREATES), "RESOURCE_EXHAUSTED", times=2, details="quota")

    def fault_drop(self) -> None:
        self._google.commit_then_drop(self._method(CREATES, DELETES), times=2)

    def fault_hang(self) -> None:
        self._google.hang(self._method())

    def fault_operation(self) -> None:
        what = self._dice.choice(["stuck", "lost", "error", "done_before_return", "mistyped"])
        verb = "delete" if what == "mistyped" else self._dice.choice(["create", "delete", "insert"])
        of_compute = (
            {"code": 503, "message": "ZONE_RESOURCE_POOL_EXHAUSTED"} if verb == "insert" else {}
        )
        self._google.operation(what, verb=verb, **of_compute)

    def fault_lists(self) -> None:
        self._google.page_size(
            self._dice.choice([3, 7, 500]),
            empty_pages=self._dice.randint(0, 2),
            duplicates=self._dice.random() < 0.5,
        )
        self._google.stale_lists(ghosts=self._dice.choice([0, 90]), lag=self._dice.choice([0, 90]))

    def _method(self, *of: tuple[str, ...]) -> str:
        return self._dice.choice(
            [method for methods in of or (CREATES, DELETES, LOOKS) for method in methods]
        )
