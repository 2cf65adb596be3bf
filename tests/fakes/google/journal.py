"""The persistent state: one line per change, written before the reply. The last line of a resource
counts; a line that the end of the process cut short does not.
"""

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

from tests.fakes.google.records import Knobs, Machine, Operation, Resource, Rule, Verdict


class Journal:
    """The file. Opening it reads it and writes it anew, without what no longer counts."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / "state.jsonl"
        self._latest: dict[str, Any] = {}
        for each in _lines(path):
            self._latest[each["key"]] = each["value"]
        new = path.with_suffix(".new")
        with new.open("w") as file:
            file.writelines(
                _line(name, value) for name, value in self._latest.items() if value is not None
            )
        new.replace(path)
        self._file = path.open("a", buffering=1 << 20)
        self._audit_path = directory / "audit.jsonl"
        self._audit = self._audit_path.open("a", buffering=1 << 20)

    def load(self) -> tuple[dict[str, Resource], dict[str, Operation], Knobs, dict[str, Any]]:
        """(resources, operations, knobs, anything else), as they were."""
        resources, operations, knobs, rest = {}, {}, Knobs(), {}
        for name, value in self._latest.items():
            kind, _, key = name.partition("|")
            if value is None:
                continue
            if kind == "resource":
                machines = {
                    worker: Machine(**machine) for worker, machine in value.pop("machines").items()
                }
                resources[key] = Resource(**value, machines=machines)
            elif kind == "operation":
                operations[key] = Operation(**value)
            elif kind == "knobs":
                knobs = knobs_from(value)
            else:
                rest[key] = value
        self._latest = {}
        return resources, operations, knobs, rest

    def audit(self) -> list[dict[str, Any]]:
        """Everything that has happened."""
        return list(_lines(self._audit_path))

    def keep(self, changes: dict[str, Any], happened: list[dict[str, Any]]) -> None:
        """Write it down. A value of None: there is none any more."""
        for name, value in changes.items():
            self._file.write(
                _line(name, dataclasses.asdict(value) if dataclasses.is_dataclass(value) else value)
            )  # type: ignore[arg-type]
        self._file.flush()
        self._audit.writelines(json.dumps(each) + "\n" for each in happened)
        self._audit.flush()


def knobs_from(value: dict[str, Any]) -> Knobs:
    """The knobs of their JSON."""
    rules, verdicts = (
        [Rule(**each) for each in value.pop("rules")],
        [Verdict(**each) for each in value.pop("verdicts")],
    )
    return Knobs(**value, rules=rules, verdicts=verdicts)


def _line(name: str, value: Any) -> str:
    return json.dumps({"key": name, "value": value}) + "\n"


def _lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    whole, _, cut = path.read_bytes().rpartition(b"\n")
    if cut:
        os.truncate(path, len(whole) + bool(whole))
    return [json.loads(line) for line in whole.splitlines()]
