"""The store: the cloud's resources, their pending events, and the audit log.

Events happen only in `settle`, which executes those that are due at the clock's time. Every call
settles first, and the process settles about fifty times a second.
"""

import base64
import fnmatch
import heapq
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

from tests.fakes.google import limits
from tests.fakes.google.clock import Clock
from tests.fakes.google.journal import Journal
from tests.fakes.google.records import Operation, Resource, Verdict


class Power(Protocol):
    """What is done to the machines behind resources."""

    def on(self, resource: Resource) -> None:
        """Its hosts boot."""

    def off(self, resource: Resource) -> None:
        """Its hosts lose their power."""

    def notice(self, resource: Resource) -> None:
        """Its hosts are told that they will be preempted."""


class Nothing:
    """No machines: resources only."""

    def on(self, resource: Resource) -> None:
        pass

    def off(self, resource: Resource) -> None:
        pass

    def notice(self, resource: Resource) -> None:
        pass


class Cloud:
    """What there is. Calls that change it end with `flush`."""

    def __init__(self, directory: Path, power: Power | None = None) -> None:
        self._journal = Journal(directory)
        self.resources, self.operations, self.knobs, rest = self._journal.load()
        self.clock = Clock(rest.get("clock"))
        self.power: Power = power or Nothing()
        #: What happened, in order: {"at", "what", …}.
        self.audit = self._journal.audit()
        #: What no client that behaves would have done.
        self.complaints: list[str] = rest.get("complaints", [])
        #: Whether machines boot: then their addresses are of this machine.
        self.boots = power is not None
        self._hosts_made: int = rest.get("hosts_made", 0)
        #: Of compute's requests: request id → operation.
        self.requests: dict[str, str] = rest.get("requests", {})
        #: What is gone, while lists still show it.
        self.ghosts: list[tuple[float, Resource]] = []
        self._changes: dict[str, Any] = {}
        self._happened: list[dict[str, Any]] = []
        self._heap: list[tuple[float, str]] = [
            (each[0], one.key) for one in self.resources.values() for each in one.due
        ]
        heapq.heapify(self._heap)

    # -- looking

    def get(self, key: str) -> Resource | None:
        return self.resources.get(key)

    def of_kind(self, kind: str, project: str) -> Iterator[Resource]:
        return (
            each
            for each in self.resources.values()
            if each.kind == kind and each.project == project
        )

    def shown(self, key: str) -> Resource | None:
        """What calls about it find."""
        resource = self.resources.get(key)
        return (
            resource
            if resource is not None and self.clock.now() - resource.created >= self.knobs.unseen
            else None
        )

    def quota_words(self, wanted: Resource) -> str:
        """See `limits.quota_exceeded`."""
        return limits.quota_exceeded(self.knobs, self.resources.values(), wanted)

    def is_full(self, wanted: Resource) -> bool:
        """See `limits.is_full`."""
        return limits.is_full(self.knobs, self.resources.values(), wanted)

    # -- writing down

    def touch(self, resource: Resource) -> None:
        self._changes[f"resource|{resource.key}"] = (
            resource if resource.key in self.resources else None
        )

    def keep(self, operation: Operation) -> None:
        self.operations[operation.name] = operation
        self._changes[f"operation|{operation.name}"] = operation

    def log(self, what: str, **words: Any) -> None:
        entry = {"at": self.clock.now(), "what": what, **words}
        self.audit.append(entry)
        self._happened.append(entry)

    def complain(self, words: str) -> None:
        self.complaints.append(words)
        self._changes["rest|complaints"] = self.complaints

    def remember(self, request: str, operation: str) -> None:
        self.requests[request] = operation
        self._changes["rest|requests"] = self.requests

    def turned(self) -> None:
        """A knob or the clock."""
        self._changes["knobs|"] = self.knobs
        self._changes["rest|clock"] = self.clock.saved()

    def flush(self) -> None:
        """Nobody is answered before what was done is written down."""
        if self._changes or self._happened:
            self._journal.keep(self._changes, self._happened)
            self._changes, self._happened = {}, []

    # -- coming and going

    def schedule(
        self, resource: Resource, seconds: float | None, what: str, operation: str = ""
    ) -> None:
        """None: never."""
        if seconds is not None:
            at = self.clock.now() + seconds
            resource.due.append([at, what, operation])
            heapq.heappush(self._heap, (at, resource.key))
        self.touch(resource)

    def delay(self, table: dict[str, float | None], resource: Resource) -> float | None:
        """The entry of a table of times that counts for it."""
        named = (each for each in (resource.name, resource.type, resource.zone) if each in table)
        return table[next(named, "")]

    def add(self, resource: Resource, what: str = "created") -> None:
        self.resources[resource.key] = resource
        self.log(
            what,
            kind=resource.kind,
            path=resource.path,
            uid=resource.uid,
            labels=resource.labels,
            foreign=resource.foreign,
        )
        self.touch(resource)

    def remove(self, resource: Resource, what: str = "deleted") -> None:
        """Nothing is left of it."""
        self.power.off(resource)
        if self.resources.pop(resource.key, None) is None:
            return
        self.log(what, kind=resource.kind, path=resource.path, uid=resource.uid)
        if self.knobs.ghosts:
            self.ghosts.append((self.clock.now() + self.knobs.ghosts, resource))
        self.touch(resource)

    def address(self) -> list[str]:
        """(private, public) of a new host: no two have the same one."""
        self._hosts_made += 1
        self._changes["rest|hosts_made"] = self._hosts_made
        place = f"{self._hosts_made // 64_516 % 64}.{self._hosts_made // 254 % 254 + 1}.{self._hosts_made % 254 + 1}"
        first, rest = place.split(".", 1)
        private = f"127.{16 + int(first)}" if self.boots else f"10.{128 + int(first)}"
        return [f"{private}.{rest}", f"34.{90 + int(first)}.{rest}"]

    # -- operations

    def begin(self, api: str, verb: str, resource: Resource) -> Operation:
        """A new operation on it, as the verdicts have it."""
        now = self.clock.now()
        short = f"operation-{int(now * 1000)}-{secrets.token_hex(6)}"
        name = (
            short
            if api == "compute"
            else f"projects/{resource.project}/locations/{resource.zone}/operations/{short}"
        )
        operation = Operation(
            name, resource.project, resource.zone, api, verb, resource.path, resource.uid, now
        )
        self.keep(operation)
        return operation

    def verdict(self, verb: str, resource: Resource) -> Verdict | None:
        """What tests want of this one."""
        for verdict in self.knobs.verdicts:
            if (
                fnmatch.fnmatchcase(verb, verdict.verb)
                and verdict.match in resource.path
                and verdict.times != 0
            ):
                if verdict.times is not None:
                    verdict.times -= 1
                self.turned()
                return verdict
        return None

    def finish(
        self,
        name: str,
        error: dict[str, Any] | None = None,
        response: str = "empty",
        message: bytes = b"",
    ) -> None:
        """The operation is done, unless it is stuck."""
        operation = self.operations.get(name)
        if operation is None or operation.ended is not None or operation.stuck:
            return
        operation.ended, operation.error = self.clock.now(), error
        operation.response, operation.response_body = response, base64.b64encode(message).decode()
        self.keep(operation)

    # -- time

    def next_due(self) -> Iterator[tuple[float, Resource, str, str]]:
        """What has fallen due, the earliest first; what that schedules in turn comes, too, if it is
        due.
        """
        while self._heap and self._heap[0][0] <= self.clock.now():
            at, key = heapq.heappop(self._heap)
            resource = self.resources.get(key)
            entry = resource and next((each for each in resource.due if each[0] == at), None)
            if resource and entry:
                resource.due.remove(entry)
                self.touch(resource)
                yield at, resource, entry[1], entry[2]

    def listed(self, kind: str, project: str, zones: Iterable[str] | None = None) -> list[Resource]:
        """What lists show, by name: not quite what there is."""
        now = self.clock.now()
        self.ghosts = [each for each in self.ghosts if each[0] > now and self.knobs.ghosts]
        found = [
            each
            for each in self.of_kind(kind, project)
            if now - each.created >= max(self.knobs.lag, self.knobs.unseen)
        ]
        shown = {each.key for each in found}
        found += [
            each
            for _, each in self.ghosts
            if each.kind == kind and each.project == project and each.key not in shown
        ]
        if zones is not None:
            chosen = set(zones)
            found = [each for each in found if each.zone in chosen]
        return sorted(found, key=lambda each: (each.zone, each.name))
