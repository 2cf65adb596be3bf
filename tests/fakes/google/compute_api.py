"""The Compute API, v1, over HTTP: instances and zone operations."""

import asyncio
import functools
import json
import re
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.fakes.google import catalog, instances, rules
from tests.fakes.google.cloud import Cloud
from tests.fakes.google.compute_messages import (
    ROOT,
    error_message,
    instance_message,
    matches,
    operation_message,
)
from tests.fakes.google.compute_rules import new_instance
from tests.fakes.google.faults import Gate
from tests.fakes.google.http import Answer, Asked
from tests.fakes.google.pages import page
from tests.fakes.google.records import INSTANCE, Operation, Resource, key
from tests.fakes.google.refusals import Refusal, invalid, not_found

PREFIX = "/compute/v1/"
#: How long `wait` waits at most, in seconds.
PATIENCE = 20.0
_ZONE = r"projects/(?P<project>[^/]+)/zones/(?P<zone>[^/]+)"
_INSTANCE = rf"{_ZONE}/instances/(?P<name>[^/]+)"
_OPERATION = rf"{_ZONE}/operations/(?P<name>[^/]+)"
#: Which method a request means.
_ROUTES = tuple(
    (verb, re.compile(pattern), method)
    for verb, pattern, method in (
        ("POST", rf"{_ZONE}/instances", "instances.insert"),
        ("GET", rf"{_ZONE}/instances", "instances.list"),
        ("GET", r"projects/(?P<project>[^/]+)/aggregated/instances", "instances.aggregatedList"),
        ("GET", _INSTANCE, "instances.get"),
        ("DELETE", _INSTANCE, "instances.delete"),
        ("POST", rf"{_INSTANCE}/setLabels", "instances.setLabels"),
        ("POST", rf"{_INSTANCE}/setMetadata", "instances.setMetadata"),
        ("GET", rf"{_INSTANCE}/serialPort", "instances.getSerialPortOutput"),
        ("POST", rf"{_INSTANCE}/stop", "instances.stop"),
        ("POST", rf"{_INSTANCE}/start", "instances.start"),
        ("POST", rf"{_INSTANCE}/reset", "instances.reset"),
        ("GET", rf"{_ZONE}/operations", "zoneOperations.list"),
        ("GET", _OPERATION, "zoneOperations.get"),
        ("POST", rf"{_OPERATION}/wait", "zoneOperations.wait"),
    )
)


class ComputeApi:
    """What each method does."""

    def __init__(self, cloud: Cloud, gate: Gate, console: Callable[[Resource, int], Path]) -> None:
        self._cloud, self._gate, self._console = cloud, gate, console

    async def answer(self, asked: Asked) -> Answer:
        """The answer to a request below `PREFIX`.

        Raises:
            Dropped: the connection is to be cut.
        """
        path = asked.path.removeprefix(PREFIX)
        try:
            for verb, pattern, method in _ROUTES:
                match = pattern.fullmatch(path)
                if match and asked.method == verb:
                    return Answer(200, await self._made(method, path, asked, match.groupdict()))
            raise Refusal(
                "NOT_FOUND", f"The requested URL {asked.path} was not found on this server."
            )
        except Refusal as refusal:
            headers = {"Retry-After": str(refusal.retry_after)} if refusal.retry_after else {}
            return Answer(refusal.http_status, error_message(refusal), headers)

    async def _made(self, method: str, path: str, asked: Asked, names: dict[str, str]) -> Any:
        subject = path
        if method == "instances.insert":
            subject = f"{path}/{_name_in(asked.body)}"
        if method == "zoneOperations.wait":
            return await self._waited(path, names)
        short = method.partition(".")[2]
        does: dict[str, Callable[[Asked, dict[str, str]], Any]] = {
            "instances.insert": self._insert,
            "instances.list": self._list,
            "instances.aggregatedList": self._aggregated,
            "instances.getSerialPortOutput": self._serial,
            "zoneOperations.list": self._operations,
            "zoneOperations.get": self._operation,
        }
        what = does.get(method) or functools.partial(self._on_instance, short)
        return await self._gate.call(method, subject, functools.partial(what, asked, names))

    def _insert(self, asked: Asked, names: dict[str, str]) -> Any:
        rules.check_place(self._cloud.knobs, names["project"], names["zone"])
        again = self._asked_before(asked)
        if again is not None:
            return again
        instance = new_instance(self._cloud, names["project"], names["zone"], asked.body)
        return self._begun(asked, instances.insert(self._cloud, instance))

    def _on_instance(self, method: str, asked: Asked, names: dict[str, str]) -> Any:
        rules.check_place(self._cloud.knobs, names["project"], names["zone"])
        changes = method != "get"
        again = self._asked_before(asked) if changes else None
        if again is not None:
            return again
        resource = self._cloud.shown(key(INSTANCE, names["project"], names["zone"], names["name"]))
        if resource is None:
            raise not_found(
                f"projects/{names['project']}/zones/{names['zone']}/instances/{names['name']}"
            )
        if not changes:
            return instance_message(resource)
        if resource.foreign:
            self._cloud.complain(f"{resource.path}: {method}, and it is somebody else's")
        return self._begun(asked, self._changed(method, asked, resource))

    def _changed(self, method: str, asked: Asked, resource: Resource) -> Operation:
        match method:
            case "setLabels":
                wanted = json.loads(asked.body)
                labels = wanted.get("labels", {})
                rules.check_labels(labels)
                return instances.set_labels(
                    self._cloud, resource, labels, wanted.get("labelFingerprint", "")
                )
            case "setMetadata":
                metadata = json.loads(asked.body)
                rules.check_metadata(
                    (each["key"], each.get("value", "")) for each in metadata.get("items", [])
                )
                return instances.set_metadata(self._cloud, resource, metadata)
            case "delete":
                return instances.delete(self._cloud, resource)
            case "stop":
                return instances.stop(self._cloud, resource)
            case "start":
                return instances.start(self._cloud, resource)
            case _:
                return instances.reset(self._cloud, resource)

    def _begun(self, asked: Asked, operation: Operation) -> Any:
        if request := asked.query.get("requestId"):
            self._cloud.remember(request, operation.name)
        return operation_message(operation)

    def _asked_before(self, asked: Asked) -> Any:
        """The operation of a request that is made again."""
        request = asked.query.get("requestId")
        if request is None:
            return None
        try:
            valid = uuid.UUID(request).int != 0
        except ValueError:
            valid = False
        if not valid:
            raise invalid(
                f"Invalid value for field 'requestId': '{request}'. It must be a UUID that is not"
                " zero."
            )
        name = self._cloud.requests.get(request)
        return operation_message(self._cloud.operations[name]) if name else None

    def _list(self, asked: Asked, names: dict[str, str]) -> Any:
        rules.check_place(self._cloud.knobs, names["project"], names["zone"])
        some, token = self._page(
            asked, self._cloud.listed(INSTANCE, names["project"], [names["zone"]])
        )
        body = {"kind": "compute#instanceList", "items": some}
        return body | ({"nextPageToken": token} if token else {})

    def _aggregated(self, asked: Asked, names: dict[str, str]) -> Any:
        down = self._cloud.knobs.zones_down
        found = [
            each for each in self._cloud.listed(INSTANCE, names["project"]) if each.zone not in down
        ]
        some, token = self._page(asked, found)
        items: dict[str, Any] = {}
        for each in some:
            items.setdefault("zones/" + each["zone"].rpartition("/")[2], {"instances": []})[
                "instances"
            ].append(each)
        for zone in sorted(catalog.ZONES.union(self._cloud.knobs.zones)):
            items.setdefault(
                f"zones/{zone}",
                {"warning": {"code": "NO_RESULTS_ON_PAGE", "message": "There are no results"}},
            )
        for zone in down:
            items[f"zones/{zone}"] = {
                "warning": {"code": "UNREACHABLE", "message": f"zones/{zone} does not answer"}
            }
        body: dict[str, Any] = {"kind": "compute#instanceAggregatedList", "items": items}
        if down:
            body["unreachables"] = [
                f"{ROOT}projects/{names['project']}/zones/{zone}" for zone in down
            ]
        return body | ({"nextPageToken": token} if token else {})

    def _page(self, asked: Asked, found: list[Resource]) -> tuple[list[Any], str]:
        text = asked.query.get("filter", "")
        messages = [
            each for each in map(instance_message, found) if not text or matches(each, text)
        ]
        if text:  # a filter that is none is refused, whether there is anything to filter or not
            matches({}, text)
        most = int(asked.query.get("maxResults", "500"))
        if most > 500:
            raise invalid(f"Invalid value for field 'maxResults': '{most}'. Must be at most 500.")
        return page(self._cloud.knobs, messages, most, asked.query.get("pageToken", ""))

    def _serial(self, asked: Asked, names: dict[str, str]) -> Any:
        resource = self._cloud.shown(key(INSTANCE, names["project"], names["zone"], names["name"]))
        if resource is None:
            raise not_found(
                f"projects/{names['project']}/zones/{names['zone']}/instances/{names['name']}"
            )
        path, start = self._console(resource, 0), int(asked.query.get("start", "0"))
        text = path.read_bytes() if path.exists() else b""
        for name in (resource.name, resource.type):
            text += self._cloud.knobs.consoles.get(name, "").encode()
        contents = text[start:].decode(errors="replace")
        return {
            "kind": "compute#serialPortOutput",
            "contents": contents,
            "start": str(start),
            "next": str(len(text)),
        }

    def _operations(self, asked: Asked, names: dict[str, str]) -> Any:
        rules.check_place(self._cloud.knobs, names["project"], names["zone"])
        place = (names["project"], names["zone"], "compute")
        found = [
            each
            for each in self._cloud.operations.values()
            if (each.project, each.zone, each.api) == place and not each.lost
        ]
        messages = [operation_message(each) for each in found]
        if text := asked.query.get("filter"):
            messages = [each for each in messages if matches(each, text)]
        some, token = page(
            self._cloud.knobs,
            messages,
            int(asked.query.get("maxResults", "500")),
            asked.query.get("pageToken", ""),
        )
        return {"kind": "compute#operationList", "items": some} | (
            {"nextPageToken": token} if token else {}
        )

    def _operation(self, asked: Asked | None, names: dict[str, str]) -> Any:
        rules.check_place(self._cloud.knobs, names["project"], names["zone"])
        operation = self._cloud.operations.get(names["name"])
        if operation is None or operation.lost:
            raise not_found(
                f"projects/{names['project']}/zones/{names['zone']}/operations/{names['name']}"
            )
        return operation_message(operation)

    async def _waited(self, path: str, names: dict[str, str]) -> Any:
        """The operation when it is done, or as it is after a while."""
        until = time.monotonic() + PATIENCE
        message = await self._gate.call(
            "zoneOperations.wait", path, lambda: self._operation(None, names)
        )
        while message["status"] != "DONE" and time.monotonic() < until:
            await asyncio.sleep(0.02)
            message = self._operation(None, names)
        return message


def _name_in(body: bytes) -> str:
    try:
        return str(json.loads(body).get("name", ""))
    except (ValueError, AttributeError):
        return ""
