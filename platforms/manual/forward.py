"""Forwards ports of this machine to another one over SSH."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import asyncssh

from iris.platforms.manual.connections import Connections, MachineFault
from iris.platforms.manual.settings import HostAccess, ManualSettings


async def forward(
    access: HostAccess, ports: Mapping[int, int], *, known_hosts: Path, connect_timeout: timedelta
) -> str:
    """Forwards ports until the connection breaks.

    Args:
        ports: the loopback port on the machine for each loopback port of this machine.

    Returns:
        Why it broke, or why there was none.
    """
    settings = ManualSettings(
        cluster="",
        uid="",
        hosts={},
        zones={},
        connect_timeout=connect_timeout,
        known_hosts=known_hosts,
    )
    try:
        async with Connections(settings).to(access) as connection:
            for here, there in ports.items():
                await connection.forward_local_port("127.0.0.1", here, "127.0.0.1", there)
            await connection.wait_closed()
    except MachineFault as error:
        return str(error)
    except (OSError, asyncssh.Error) as error:
        return f"{access}: {error}"
    return f"{access}: the SSH connection broke"
