"""The control API for tests: `POST /control/<verb>` with the arguments as JSON; the reply is JSON,
too.
"""

import json
import secrets
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from tests.fakes.google import catalog, instances, nodes
from tests.fakes.google.cloud import Cloud
from tests.fakes.google.http import Answer, Asked
from tests.fakes.google.machines import Machines
from tests.fakes.google.records import INSTANCE, NODE, QUEUED, Resource, Rule, Verdict
from tests.fakes.google.refusals import status_name

PREFIX = "/control/"


class Control:
    """Every public method is a verb."""

    def __init__(self, cloud: Cloud, machines: Machines | None, settle: Callable[[], None]) -> None:
        self._cloud, self._machines, self._settle = cloud, machines, settle

    def answer(self, asked: Asked) -> Answer:
        verb = asked.path.removeprefix(PREFIX).replace("-", "_")
        does = getattr(self, verb, None)
        if asked.method != "POST" or verb.startswith("_") or verb == "answer" or does is None:
            return Answer(404, {"error": f"there is no {asked.method} {asked.path}"})
        try:
            self._settle()
            answer = does(**json.loads(asked.body or b"{}"))
            self._settle()
        except (TypeError, ValueError, LookupError) as error:
            return Answer(400, {"error": f"{verb}: {error!r}"})
        return Answer(200, answer)

    # -- faults of calls

    def fault(self, **rule: Any) -> None:
        """Calls of a method fail, hang, are slow, are cut off when they are done, or are too many:
        see `Rule`.
        """
        made = Rule(**rule)
        if made.status:
            status_name(made.status)
        self._cloud.knobs.rules.append(made)
        self._cloud.turned()

    def operation(self, **verdict: Any) -> None:
        """What becomes of the next operations: see `Verdict`."""
        self._cloud.knobs.verdicts.append(Verdict(**verdict))
        self._cloud.turned()

    def clear(self) -> None:
        """No rules, no verdicts, no zones that are down, and whatever there is is shown."""
        self._cloud.knobs.unseen = 0.0
        self._cloud.knobs.rules, self._cloud.knobs.verdicts, self._cloud.knobs.zones_down = (
            [],
            [],
            [],
        )
        self._cloud.turned()

    # -- how the cloud is

    def zones(self, names: list[str]) -> None:
        """These exist, too."""
        self._cloud.knobs.zones = sorted({*self._cloud.knobs.zones, *names} - catalog.ZONES)
        self._cloud.turned()

    def zone_down(self, zone: str, down: bool = True) -> None:
        """It does not answer, and is not listed."""
        known = [each for each in self._cloud.knobs.zones_down if each != zone]
        self._cloud.knobs.zones_down = [*known, zone] if down else known
        self._cloud.turned()

    def offer(self, zone: str, types: list[str]) -> None:
        """The zone has these types only."""
        self._cloud.knobs.offers[zone] = types
        self._cloud.turned()

    def capacity(
        self, zone: str, type: str, n: int | None, tier: str = "*", project: str = "*"
    ) -> None:
        """So many slices fit in; None: as many as anybody likes."""
        what = (zone, type, tier, project)
        known = [each for each in self._cloud.knobs.capacity if tuple(each[:4]) != what]
        self._cloud.knobs.capacity = known if n is None else [*known, (*what, n)]
        self._cloud.turned()

    def quota(
        self, family: str, tier: str, scope: str, limit: int | None, project: str = "*"
    ) -> None:
        """So many chips or vCPUs may be had in a zone or region; None: as many as anybody likes."""
        what = (family, tier, scope, project)
        known = [each for each in self._cloud.knobs.quota if tuple(each[:4]) != what]
        self._cloud.knobs.quota = known if limit is None else [*known, (*what, limit)]
        self._cloud.turned()

    def boot_time(self, seconds: float | None, name: str = "") -> None:
        """By name, type or zone; without a name: of all others. What comes up already is hurried or
        held up as well.
        """
        self._cloud.knobs.boot_time[name] = seconds
        self._cloud.turned()
        for resource in self._cloud.resources.values():
            for entry in [
                each for each in resource.due if each[1] in ("ready", "running", "staging")
            ]:
                resource.due.remove(entry)
                wait = self._cloud.delay(self._cloud.knobs.boot_time, resource)
                self._cloud.schedule(resource, wait, entry[1], entry[2])
            if (
                resource.state in ("CREATING", "PROVISIONING", "STAGING")
                and not resource.due
                and not resource.doomed
            ):
                wait = self._cloud.delay(self._cloud.knobs.boot_time, resource)
                what = (
                    "accepted"
                    if resource.kind == QUEUED
                    else "ready"
                    if resource.kind == NODE
                    else "running"
                )
                self._cloud.schedule(resource, wait, what, resource.making)

    def delete_time(self, seconds: float | None, name: str = "") -> None:
        """By name, type or zone; without a name: of all others. It counts for deletes from now
        on.
        """
        self._cloud.knobs.delete_time[name] = seconds
        self._cloud.turned()

    def knobs(self, **values: Any) -> None:
        """Any of the plain ones: page_size, empty_pages, duplicates, ghosts, lag, unseen,
        stockout_time, preemption_notice.
        """
        plain = {
            "page_size",
            "empty_pages",
            "duplicates",
            "ghosts",
            "lag",
            "unseen",
            "stockout_time",
            "preemption_notice",
        }
        for name, value in values.items():
            if name not in plain:
                raise ValueError(f"no plain knob: {name}")
            setattr(self._cloud.knobs, name, value)
        self._cloud.turned()

    def advance(self, seconds: float) -> None:
        """So much time passes at once."""
        self._cloud.clock.advance(seconds)
        self._cloud.turned()

    def run(self, speed: float) -> None:
        """From now on so many of its seconds pass in one."""
        self._cloud.clock.run(speed)
        self._cloud.turned()

    # -- what happens to resources

    def node(
        self,
        name: str,
        state: str | int | None = None,
        endpoints: int | list[str] | None = None,
        health: int | None = None,
        vanish: bool = False,
        note: str = "",
    ) -> None:
        """A resource becomes something by itself. Of a node that is not there yet: how many
        endpoints, or which, it will have.
        """
        if endpoints is not None and not self._named(name):
            self._cloud.knobs.endpoints[name] = endpoints
            self._cloud.turned()
            return
        resource = self._one(name)
        if vanish:
            self._cloud.remove(resource, "vanished")
            return
        if health is not None:
            resource.health = health
        if note:
            resource.note = note
        if isinstance(endpoints, int):
            resource.endpoints = [self._cloud.address() for _ in range(endpoints)]
        elif endpoints is not None:
            resource.endpoints = [[each, "8.8.8.8" if each else ""] for each in endpoints]
        if state is not None:
            self._becomes(resource, str(state))
        self._cloud.touch(resource)

    def _becomes(self, resource: Resource, state: str) -> None:
        if resource.kind == NODE and state in ("PREEMPTED", "TERMINATED"):
            nodes.end(self._cloud, resource, state, 0.0)
        elif resource.kind == NODE and state == "READY" and resource.state == "CREATING":
            nodes.ready(self._cloud, resource, resource.making)
        else:
            resource.state = state

    def queued(self, name: str, state: str | int, note: str = "") -> None:
        """A queued resource becomes something by itself."""
        resource = self._one(name, (QUEUED,))
        resource.state, resource.note = str(state), note
        self._cloud.touch(resource)

    def preempt(self, name: str, notice: float | None = None) -> None:
        """Google takes it back; of a queued resource: its nodes."""
        resource = self._one(name, (NODE, INSTANCE, QUEUED))
        wait = self._cloud.knobs.preemption_notice if notice is None else notice
        if resource.kind == INSTANCE:
            instances.preempt(self._cloud, resource, wait)
            return
        for node in [resource] if resource.kind == NODE else nodes.nodes_of(self._cloud, resource):
            nodes.preempt(self._cloud, node, wait)

    def reboot(self, name: str, readdress: bool = False) -> None:
        """Its hosts lose their power and boot anew, as in maintenance."""
        resource = self._one(name)
        self._cloud.power.off(resource)
        if readdress:
            resource.endpoints = [self._cloud.address() for _ in resource.endpoints]
        self._cloud.power.on(resource)
        self._cloud.touch(resource)

    def say(self, name: str, text: str) -> None:
        """An instance says this on its serial console; or all of a type do."""
        self._cloud.knobs.consoles[name] = self._cloud.knobs.consoles.get(name, "") + text
        self._cloud.turned()

    def refuse_boot(self, host: str) -> None:
        """The host never boots: `NAME-w-N` of a node with several, otherwise `NAME`."""
        self._cloud.knobs.dead_hosts.append(host)
        self._cloud.turned()

    def seed_foreign(
        self,
        name: str,
        project: str,
        zone: str,
        kind: str = NODE,
        labels: dict[str, str] | None = None,
        type: str = "",
        state: str = "",
        foreign: bool = True,
    ) -> None:
        """Something that was there before; `foreign`: and that nobody may touch."""
        self._cloud.add(
            seeded(self._cloud, name, project, zone, kind, labels or {}, type, state, foreign),
            "planted",
        )

    # -- looking

    def audit(self, since: int = 0) -> list[dict[str, Any]]:
        """Everything that has happened: calls, and what was created, planted, deleted, and
        vanished.
        """
        return self._cloud.audit[since:]

    def alive(self, project: str = "") -> list[dict[str, Any]]:
        """What there is."""
        found = sorted(self._cloud.resources.values(), key=lambda each: each.key)
        return [
            asdict(each) | {"path": each.path} for each in found if project in ("", each.project)
        ]

    def check(self, project: str = "") -> list[str]:
        """What is wrong: with the books, or with what clients did."""
        came = {each["uid"] for each in self._cloud.audit if each["what"] in ("created", "planted")}
        went = {
            each["uid"] for each in self._cloud.audit if each["what"] in ("deleted", "vanished")
        }
        alive = {each.uid for each in self._cloud.resources.values()}
        wrong = [f"{uid} was never created" for uid in (went | alive) - came]
        wrong += [f"{uid} is lost" for uid in came - went - alive]
        wrong += [f"{uid} was deleted, and is there" for uid in went & alive]
        return wrong + [each for each in self._cloud.complaints if f"projects/{project}" in each]

    def hosts(self, name: str) -> list[dict[str, Any]]:
        """The booted hosts of a resource: directory, console, metadata server."""
        return self._machines.told(self._one(name)) if self._machines else []

    def host_metadata(self, name: str, worker: int, path: str, value: str) -> None:
        """Set a value of a host's metadata server, such as `instance/maintenance-event`."""
        if self._machines is None:
            raise ValueError("no hosts boot here")
        self._machines.set(self._one(name), worker, path, value)

    def now(self) -> float:
        return self._cloud.clock.now()

    def _named(self, name: str, kinds: tuple[str, ...] = (NODE, INSTANCE)) -> list[Resource]:
        return [
            each
            for each in self._cloud.resources.values()
            if name in (each.name, each.path) and each.kind in kinds
        ]

    def _one(self, name: str, kinds: tuple[str, ...] = (NODE, INSTANCE)) -> Resource:
        found = self._named(name, kinds)
        if not found:
            raise LookupError(f"there is no {name}")
        return min(found, key=lambda each: kinds.index(each.kind))


def seeded(
    cloud: Cloud,
    name: str,
    project: str,
    zone: str,
    kind: str,
    labels: dict[str, str],
    type: str,
    state: str,
    foreign: bool,
) -> Resource:
    """A resource that nobody has asked for."""
    type = type or ("n2-standard-4" if kind == INSTANCE else "v5litepod-16")
    return Resource(
        kind=kind,
        project=project,
        zone=zone,
        name=name,
        uid=secrets.randbits(62),
        created=cloud.clock.now(),
        body=json.dumps({"name": name, "disks": [{"boot": True}]}) if kind == INSTANCE else "",
        state=state or {NODE: "READY", QUEUED: "ACTIVE", INSTANCE: "RUNNING"}[kind],
        labels=labels,
        type=type,
        family=type.partition("-")[0] if kind == INSTANCE else catalog.tpu_family(type),
        tier="on-demand",
        units=1,
        hosts=1,
        endpoints=[cloud.address()],
        health=1,
        foreign=foreign,
    )
