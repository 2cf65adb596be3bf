"""Decides whether the versions of a cluster's parts fit together, and what to do if they do not.

Parts of one release, such as 0.1, fit. A control plane serves older agents and clients only if it
can still read their messages. Newer ones may request features that it does not have. So the control
plane is upgraded first, then the agents, then the clients.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

#: The limit on hosts that the text from `remedy` names if agents of another version must be
#: restarted.
NAMED = 3
#: The features that Iris uses and that some versions of the Temporal service lack, under the names
#: that the service gives them.
FEATURES = ("sync_update", "worker_heartbeats", "standalone_activities")
#: A version of the service that has all of `FEATURES`.
SERVER = "1.32"


class Release(NamedTuple):
    """The part of Iris's version that must be equal in all processes of a cluster."""

    major: int
    minor: int


def release(version: str | None) -> Release:
    """Returns the release of a version. A process that does not report its version is older than
    every process that does.
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
    """Returns the first thing to do so that the versions fit; empty if they fit.

    Args:
        control_planes: the versions of the running control plane processes; at least one.
        agents: the hosts by the version of their agents.
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
