"""The users of jobs that run as processes: uids without names, of which each attempt has one for
itself.
"""

import re

from iris.model.errors import InvalidValue

#: The uids of jobs by default. Neither distributions nor systemd give them to anyone, see
#: systemd.io/UIDS-GIDS.
DEFAULT_UIDS = range(60_706, 61_184)
#: The setting with which jobs run as the user of their agent.
AGENT_USER = "root"
#: Smaller uids belong to the system and to people. Linux's call for a user's processes takes no
#: larger ones than the last, and 65534 and 65535 have special meanings.
_FIRST, _LAST, _SPECIAL = 60_001, 2**31 - 2, (65_534, 65_535)
_RANGE = re.compile(r"(\d{1,10})-(\d{1,10})")


def parse_run_as(text: str, field: str = "run_as") -> range | None:
    """Returns the uids of `FIRST-LAST`, or None for `root`: jobs run as the user of their agent.

    Raises:
        InvalidValue: the text is neither, or the uids include those of the system or of people: a
            job's end kills all of its uid.
    """
    if text == AGENT_USER:
        return None
    remedy = (
        f"use a range such as {DEFAULT_UIDS[0]}-{DEFAULT_UIDS[-1]}, or {AGENT_USER} for the user of"
        " the agent"
    )
    if (match := _RANGE.fullmatch(text)) is None:
        raise InvalidValue(field, text, "is not a range of uids", remedy)
    uids = range(int(match[1]), int(match[2]) + 1)
    if not uids or uids[0] < _FIRST or uids[-1] > _LAST or any(each in uids for each in _SPECIAL):
        raise InvalidValue(
            field,
            text,
            "is empty or includes uids of the system or of people, which are below 60001",
            remedy,
        )
    return uids


def choose_uids(run_as: str, *, root: bool, simulated: bool) -> range | None:
    """Returns the uids of a host's jobs; None: its jobs run as the user of the agent.

    Args:
        run_as: the setting; empty: the default, which is the agent's user on simulated hosts and
            other uids elsewhere.
        root: the agent is root. No other user can start processes of other users.
        simulated: the host belongs to a local cluster.

    Raises:
        InvalidValue: the setting is invalid, or it asks an agent for other users that is not root.
    """
    uids = parse_run_as(run_as) if run_as else None if simulated else DEFAULT_UIDS
    if root or not run_as or simulated:
        return uids if root else None
    if uids is not None:
        raise InvalidValue(
            "run_as",
            run_as,
            "needs an agent that is root",
            f"start the agent as root, or use {AGENT_USER}",
        )
    return None
