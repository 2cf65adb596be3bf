"""Users for jobs that run as processes: each attempt has a uid of its own, without a name."""

import re

from iris.model.errors import InvalidValue

#: The default uids of jobs. Neither distributions nor systemd use them (systemd.io/UIDS-GIDS).
DEFAULT_UIDS = range(60_706, 61_184)
#: The setting with which jobs run as the same user as their agent.
AGENT_USER = "root"
#: The first and the last possible uid of jobs, and the exceptions. Smaller uids belong to the
#: system and to people. The Linux call that finds the processes of a user (getpriority) takes uids
#: of at most 31 bits, and 65534 and 65535 have special meanings.
_FIRST, _LAST, _SPECIAL = 60_001, 2**31 - 2, (65_534, 65_535)
_RANGE = re.compile(r"(\d{1,10})-(\d{1,10})")


def parse_run_as(text: str, field: str = "run_as") -> range | None:
    """Parses `FIRST-LAST` to a range of uids, and `root` to None: jobs run as the user of their
    agent.

    Raises:
        InvalidValue: the text has another form, or the range includes uids of the system or of
            people. The end of a job kills all processes of its uid.
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
            f"is empty, or includes a uid below {_FIRST}, a uid above {_LAST}, 65534 or 65535",
            remedy,
        )
    return uids


def choose_uids(run_as: str, *, root: bool, simulated: bool) -> range | None:
    """Returns the uids for the jobs of a host, or None if they run as the user of the agent.

    Args:
        run_as: the setting. If it is empty, jobs have uids of their own, except on simulated hosts.
        root: whether the agent is root. Only root can start processes of other users.
        simulated: whether the host belongs to a local cluster.

    Raises:
        InvalidValue: the setting is invalid, or it requires other users but the agent is not root.
    """
    uids = parse_run_as(run_as) if run_as else None if simulated else DEFAULT_UIDS
    if root or not run_as or simulated:
        return uids if root else None
    if uids is not None:
        raise InvalidValue(
            "run_as",
            run_as,
            "needs an agent that runs as root",
            f"start the agent as root, or use {AGENT_USER}",
        )
    return None
