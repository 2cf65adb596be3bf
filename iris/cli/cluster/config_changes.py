"""Compares two configurations of a cluster, for people."""

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel

from iris.config import ClusterConfig, scale_groups_of
from iris.model.slice.scale_groups import ScaleGroup
from iris.model.units import format_duration

#: The names of the autoscaler's settings that `config_changes` compares.
_AUTOSCALER = ("evaluation_interval", "observe_interval")

#: The sections of a configuration that are reported as changed without details.
_WHOLE = ("prices", "teams", "budgets", "quotas", "limits")


def config_changes(before: ClusterConfig, after: ClusterConfig) -> list[str]:
    """Returns a line for each scale group that a new configuration adds, removes or changes, and
    for changes of the autoscaler, of prices, teams, budgets, quotas and limits.
    """
    old, new = (
        {group.name: group for group in scale_groups_of(config)} for config in (before, after)
    )
    lines = [
        f"+ {name}: {_limits(group)} of {group.hosts} host(s)"
        for name, group in new.items()
        if name not in old
    ]
    lines += [
        f"- {name}: its slices are deleted when they are idle" for name in old if name not in new
    ]
    for name in old:
        if name in new and (what := _differences(old[name], new[name])):
            lines.append(f"~ {name}: {', '.join(what)}")
    what = _changes(before.autoscaler, after.autoscaler, _AUTOSCALER)
    lines += [f"~ autoscaler: {', '.join(what)}"] if what else []
    changed = [key for key in _WHOLE if getattr(before, key) != getattr(after, key)]
    return [*lines, *(f"~ {key}" for key in changed)]


def _limits(group: ScaleGroup) -> str:
    return f"{group.min_slices} to {group.max_slices} slices"


def _differences(old: ScaleGroup, new: ScaleGroup) -> list[str]:
    own = [name for name in ScaleGroup.model_fields if name != "pace"]
    return _changes(old, new, own) + _changes(old.pace, new.pace, type(old.pace).model_fields)


def _changes(old: BaseModel, new: BaseModel, fields: Iterable[str]) -> list[str]:
    pairs = [(name, getattr(old, name), getattr(new, name)) for name in fields]
    return [
        f"{name} {_shown(before)} → {_shown(after)}"
        for name, before, after in pairs
        if before != after
    ]


def _shown(value: Any) -> str:
    if hasattr(value, "total_seconds"):
        return format_duration(value)
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return str(value) if value != "" else "-"
