"""Decides whether the versions of a cluster's parts fit, and what to do if they do not.

Parts of one release, such as 0.1, fit. A control plane serves older agents and clients only as far
as it still reads what they write, and newer ones may ask for what it does not have: so it is
upgraded first, then the agents, then the clients.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

#: The most hosts that a remedy names.
NAMED = 3
#: The features of the Temporal service that Iris uses and that not every version has, as the
#: service names them.
FEATURES = ("sync_update", "worker_heartbeats", "standalone_activities")
#: A version that has them all.
SERVER = "1.32"


class Release(NamedTuple):
    """The part of a version that has to be equal."""

    major: int
    minor: int


def release(version: str | None) -> Release:
    """Returns the release of a version. A process that does not report its version is of an older
    one than all that do.
    """
    parts = re.match(r"(\d+)\.(\d+)", version or "")
    return Release(int(parts[1]), int(parts[2])) if parts else Release(-1, -1)


def remedy(
    client: str,
    control_planes: Sequence[str | None],
    agents: Mapping[str | None, Sequence[str]],
    server: str,
    features: Mapping[str, bool],
) -> str:
    """Returns the first thing to do so that the versions fit; empty: they do.

    Args:
        control_planes: the versions of the processes that run; at least one.
        agents: hosts by the version of their agents.
        features: whether the Temporal service has each of `FEATURES`.
    """
    if missing := [feature for feature in FEATURES if not features[feature]]:
        return (
            f"upgrade the Temporal service to {SERVER} or later: version {server} has no"
            f" {', '.join(missing)}"
        )
    newest = max(control_planes, key=release)
    if older := sorted(
        {_text(each) for each in control_planes if release(each) != release(newest)}
    ):
        return (
            f"stop the control planes of version {', '.join(older)}: one of version {_text(newest)}"
            " runs beside them"
        )
    if release(newest) < release(client):
        other = f", or install version {newest} here" if newest else ""
        return (
            f"restart the control plane with version {client}, that of this client (`iris cluster"
            f" restart`){other}"
        )
    for version, hosts in sorted(agents.items(), key=lambda each: release(each[0])):
        if release(version) != release(newest):
            more = f" and {len(hosts) - NAMED} more" if len(hosts) > NAMED else ""
            where = f"{', '.join(sorted(hosts)[:NAMED])}{more}"
            return (
                f"restart the agents of {where} with version {newest}, that of the control plane:"
                f" theirs is {_text(version)}"
            )
    if release(client) < release(newest):
        return f"install version {newest}, that of the control plane, here"
    return ""


def _text(version: str | None) -> str:
    return version or "unknown"
