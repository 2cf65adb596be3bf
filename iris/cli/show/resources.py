"""Formats resources for people and for programs."""

from typing import TYPE_CHECKING, Any

from iris.model.host.resources import Resources, format_amounts

if TYPE_CHECKING:
    from iris.messages.scheduler import HostView


def amounts_json(amounts: dict[str, int]) -> dict[str, float | int]:
    """Returns the amounts with units in their names: `cpu` in cores, `memory_bytes`."""
    units = {"cpu": "cpu", "memory": "memory_bytes", "disk": "disk_bytes", "device": "devices"}
    return {
        units[name]: amount / 1000 if name == "cpu" else amount for name, amount in amounts.items()
    }


def resources_json(resources: Resources) -> dict[str, Any]:
    device = resources.device.model_dump(mode="json") if resources.device else None
    amounts = amounts_json(resources.amounts())
    return {
        **{name: amount for name, amount in amounts.items() if name != "devices"},
        "device": device,
    }


def free_text(view: "HostView") -> str:
    """Formats the free resources of a host, its accelerators first."""
    device, count = view.host.resources.device, view.free.get("device", 0)
    if device is None or not count:
        return format_amounts(view.free)
    rest = format_amounts({**view.free, "device": 0})
    return ", ".join(
        [str(device.model_copy(update={"count": count})), *([] if rest == "nothing" else [rest])]
    )
