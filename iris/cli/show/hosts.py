"""Formats hosts for people and for programs. The keys of the JSON are a public contract."""

from typing import TYPE_CHECKING

from iris.cli.show.columns import Column, several
from iris.cli.show.listing import Listing, headline
from iris.cli.show.resources import amounts_json, free_text, resources_json
from iris.model.host.constraints import written
from iris.model.host.hosts import ClosedBy

if TYPE_CHECKING:
    from iris.messages.scheduler import HostView


def _host_state(view: "HostView") -> str:
    """Returns READY, or why the host takes no tasks: CORDONED, DRAINED, QUARANTINED, PAUSED."""
    if not view.closed:
        return "READY"
    by = view.closed.partition(":")[0]

    return by.upper() if by in list(ClosedBy) else "PAUSED"


HOSTS: "Listing[HostView]" = Listing(
    Column("ID", "id", lambda view: view.host.id, shortens=True),
    Column("STATE", "state", _host_state),
    Column("SLICE", "slice", lambda view: view.host.slice_id, shortens=True, optional=True),
    Column(
        "OFFERS",
        "resources",
        lambda view: view.host.resources,
        json=resources_json,
        wraps=True,
        optional=True,
        importance=2,
    ),
    Column(
        "FREE",
        value=lambda view: free_text(view),
        wraps=True,
        optional=True,
        importance=3,
        least=16,
    ),
    Column(key="free", json=amounts_json),
    Column(
        "ADDRESS", "address", lambda view: view.host.address or None, optional=True, importance=1
    ),
    Column("RUNNING", "running", text=several, shortens=True),
    Column(
        "REASON",
        "reason",
        lambda view: view.closed,
        absent="",
        wraps=True,
        optional=True,
        importance=4,
        least=16,
    ),
    Column(key="attributes", value=lambda view: view.host.attributes),
    keys="id state reason slice resources free attributes running address",
    empty="no hosts",
)


def host_text(view: "HostView") -> str:
    """Formats one host with its attributes and all its tasks, for people."""
    lines = [
        headline(view.host.id, _host_state(view), view.closed or ""),
        f"slice    {view.host.slice_id}",
        *([f"address  {view.host.address}"] if view.host.address else []),
        f"offers   {view.host.resources}",
        f"free     {free_text(view)}",
        *(
            f"{'tasks' if number == 0 else '':<8} {task}"
            for number, task in enumerate(view.running or ("none",))
        ),
    ]
    attributes = {name: written(value) for name, value in sorted(view.host.attributes.items())}
    width = max(map(len, attributes), default=0)
    if attributes:
        lines += [
            "",
            "attributes",
            *(f"  {name:<{width}}  {value}" for name, value in attributes.items()),
        ]
    return "\n".join(lines)
