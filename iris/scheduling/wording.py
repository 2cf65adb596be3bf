"""Parts of the sentences that explain why a request waits."""

from iris.model.bounds import cut
from iris.model.resources import Device


def counted(count: int, noun: str) -> str:
    """Returns the number with its noun: `1 host`, `2 hosts`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def some_hosts(count: int) -> str:
    return counted(count, "host")


def best_of(count: int, best: str, noun: str) -> str:
    """Returns which of several is meant: `the largest of 2 hosts`, or `the only host`."""
    return f"the only {noun}" if count == 1 else f"the {best} of {count} {noun}s"


def have(count: int) -> str:
    return "has" if count == 1 else "have"


def kind_of(device: Device | None) -> str:
    """Returns a device's kind and variant."""
    return f"{device.kind}:{cut(device.variant)}" if device else "no devices"
