"""Reads from Google's metadata server the machine's TPU slice, its location, and the notice that
Google takes the machine away.

The server has a name that only Google's machines resolve, and uses plain HTTP. On other machines no
request is sent. Sources: cloud.google.com/compute/docs/metadata, and for TPU VMs
github.com/jax-ml/jax, cloud_tpu_cluster.py.
"""

import asyncio
import contextlib
import functools
import json
import logging
import math
import os
import re
import socket
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode, urlsplit

from iris.activities.host.machine.accelerators import TpuHost
from iris.model.errors import InvalidValue
from iris.model.host.accelerators import tpu
from iris.model.host.constraints import PREEMPTIBLE, REGION, ZONE, Attribute

logger = logging.getLogger(__name__)

URL = "http://metadata.google.internal"
#: A variable of Google's own libraries. It contains the `host[:port]` of a metadata server that is
#: used instead of Google's.
ENV_HOST = "GCE_METADATA_HOST"
#: The file in which the firmware gives the product name of the machine.
PRODUCT = Path("/sys/class/dmi/id/product_name")
#: The time limit of a request. It is short, because the server is on the same machine or close to
#: it.
REQUEST_TIMEOUT = timedelta(seconds=2)
#: The number of tries of a request. A TPU host that does not learn of its TPU would offer itself as
#: a host without one.
TRIES = 3
#: The time for which the server delays its answer if the requested value has not changed.
HOLD = timedelta(seconds=60)
_ROOT = "/computeMetadata/v1/"
_FLAVOR = {"Metadata-Flavor": "Google"}

#: The default layout of a host's TPU chips, by the number of the chips. It is used if the metadata
#: has no layout.
_BOUNDS = {1: "1,1,1", 4: "2,2,1", 8: "2,4,1"}
#: The watched metadata values that announce the end of the machine, and the reason for each. A
#: migration is not an end, because the machine continues elsewhere. Source:
#: cloud.google.com/compute/docs/instances/create-use-spot and
#: .../metadata/getting-live-migration-notice
NOTICES: Mapping[str, Mapping[str, str]] = {
    "instance/preempted": {"TRUE": "the provider is taking the machine back (preempted)"},
    "instance/maintenance-event": {
        "TERMINATE_ON_HOST_MAINTENANCE": "the provider is stopping the machine for maintenance"
    },
}
#: The first and the longest pause between two tries while the metadata server is away or does not
#: have the value. Each pause is twice the previous one.
RETRY_FIRST, RETRY_LAST = timedelta(seconds=1), timedelta(seconds=30)


class Value(NamedTuple):
    """A value of the metadata server, and its etag, which changes with the value. The text is None
    if the server has no such value.
    """

    text: str | None
    etag: str = "0"


class Metadata:
    """A client of a metadata server.

    Args:
        url: the scheme, host and port of the server.
        patience: the timeout of one answer.
    """

    def __init__(self, url: str = URL, patience: timedelta = REQUEST_TIMEOUT) -> None:
        self._patience = patience
        self._address = urlsplit(url).netloc
        self._threads = ThreadPoolExecutor(max_workers=4, thread_name_prefix="metadata")

    async def get(self, path: str) -> str | None:
        """Returns the value at `instance/…`; None: there is none, or no server answers after
        several tries.
        """
        for _ in range(TRIES):
            with contextlib.suppress(OSError):
                return (await self.ask(path)).text
        return None

    def access_token(self) -> str | None:
        """Returns an access token of the machine's service account, valid for minutes at least;
        None: no token, or no answer. Blocks.
        """
        for _ in range(TRIES):
            with contextlib.suppress(OSError):
                connection = HTTPConnection(self._address, timeout=self._patience.total_seconds())
                text = _exchange(
                    connection, "instance/service-accounts/default/token", self._patience
                ).text
                return _access_token(text or "")
        return None

    async def ask(self, path: str, changed_from: str | None = None) -> Value:
        """Returns the value. With `changed_from`, an etag, returns only once the value has changed,
        or after `HOLD`.

        Raises:
            OSError: no server answers, the answer is not from a metadata server, or it is an error.
        """
        patience = self._patience
        if changed_from is not None:
            held = {
                "wait_for_change": "true",
                "last_etag": changed_from,
                "timeout_sec": int(HOLD.total_seconds()),
            }
            path, patience = f"{path}?{urlencode(held)}", HOLD + self._patience
        connection = HTTPConnection(self._address, timeout=self._patience.total_seconds())
        exchange = functools.partial(_exchange, connection, path, patience)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, exchange)
        except asyncio.CancelledError:
            if connection.sock is not None:  # otherwise the thread would go on waiting
                with contextlib.suppress(OSError):
                    connection.sock.shutdown(socket.SHUT_RDWR)
            raise


def _exchange(connection: HTTPConnection, path: str, patience: timedelta) -> Value:
    try:
        connection.connect()
        connection.sock.settimeout(patience.total_seconds())
        connection.request("GET", _ROOT + path, headers=_FLAVOR)
        answer = connection.getresponse()
        text = answer.read().decode(errors="replace")
    except (HTTPException, ValueError) as error:
        raise OSError(f"the metadata server gave an invalid answer: {error!r}") from None
    finally:
        connection.close()
    if answer.headers["Metadata-Flavor"] != "Google":
        raise OSError("the answer does not come from a metadata server")
    if answer.status == 404:
        return Value(None)
    if answer.status != 200:
        raise OSError(f"the metadata server answers with {answer.status}")
    return Value(text, answer.headers["ETag"] or "0")


def _access_token(text: str) -> str | None:
    with contextlib.suppress(ValueError, TypeError, KeyError):
        return str(json.loads(text)["access_token"])
    return None


def of_this_machine(
    environment: Mapping[str, str] = os.environ, product: Path = PRODUCT
) -> Metadata | None:
    """Returns the metadata server of a Google machine; None on any other machine, without a
    request.
    """
    if host := environment.get(ENV_HOST):
        return Metadata(f"http://{host}")
    with contextlib.suppress(OSError, UnicodeDecodeError):
        if product.read_text().strip().startswith("Google"):
            return Metadata()
    return None


async def probe_tpu(metadata: Metadata) -> TpuHost | None:
    """Returns the TPU slice of which this machine is a host; None: it is not a host of any."""
    keys = (
        "accelerator-type",
        "tpu-env",
        "agent-worker-number",
        "worker-network-endpoints",
        "instance-id",
    )
    values = await asyncio.gather(*(metadata.get(f"instance/attributes/{each}") for each in keys))
    kind, environment, number, endpoints, node = ((value or "").strip() for value in values)
    settings = parse_tpu_env(environment)
    variant = kind or settings.get("ACCELERATOR_TYPE", "")
    if not variant:
        return None
    addresses = parse_endpoints(endpoints)
    known = None
    with contextlib.suppress(InvalidValue):  # newer than this table
        known = tpu(variant)
    bounds = settings.get("CHIPS_PER_HOST_BOUNDS", "")
    if re.fullmatch(r"[1-9]\d?(,[1-9]\d?)*", bounds) is None:
        bounds = _BOUNDS[known.chips_per_host if known else 4]
    number = number or settings.get("WORKER_ID", "")
    return TpuHost(
        # The machine's name consists of the slice's name and the host's number.
        name=node
        or settings.get("NODE_ID")
        or re.sub(r"-w-\d+$", "", await metadata.get("instance/name") or ""),
        variant=known.variant if known else variant,
        worker_id=int(number) if number.isdecimal() else 0,
        addresses=addresses,
        hosts=known.hosts if known else max(1, len(addresses)),
        chips=known.chips_per_host if known else math.prod(int(side) for side in bounds.split(",")),
        bounds=bounds,
        topology=settings.get("TOPOLOGY") or (known.topology if known else ""),
    )


async def probe_place(metadata: Metadata) -> dict[str, Attribute]:
    """Returns the machine's zone and region, and whether it is preemptible, as attributes."""
    zone, preemptible = await asyncio.gather(
        metadata.get("instance/zone"), metadata.get("instance/scheduling/preemptible")
    )
    found: dict[str, Attribute] = {}
    if zone:  # projects/123/zones/us-west4-a
        found[ZONE] = zone.strip().rpartition("/")[2]
        found[REGION] = str(found[ZONE]).rpartition("-")[0]
    if preemptible:
        found[PREEMPTIBLE] = preemptible.strip().upper() == "TRUE"
    return found


def parse_tpu_env(text: str) -> dict[str, str]:
    """Parses lines of `KEY: 'value'`; ignores other lines."""
    found = (re.fullmatch(r"""\s*(\w+):\s*(['"]?)(.*)\2\s*""", line) for line in text.splitlines())
    return {match[1]: match[3] for match in found if match}


def parse_endpoints(text: str) -> tuple[str, ...]:
    """Parses the addresses of a slice's hosts, in the order of their numbers, from
    `id:port:address,…`; none if one is missing.
    """
    fields = [endpoint.strip().split(":", 2) for endpoint in text.split(",")]
    addresses = tuple(each[2] for each in fields if len(each) == 3 and each[2])
    return addresses if len(addresses) == len(fields) else ()


async def watch_for_preemption(
    metadata: Metadata, on_notice: Callable[[str], None], retry: timedelta = RETRY_FIRST
) -> None:
    """Waits for the notice, for any time and through failures of the server. Then calls `on_notice`
    once with the reason. Google gives some thirty seconds (spot) or a minute (maintenance).

    Args:
        retry: the first pause after a failure.
    """
    watches = [
        asyncio.create_task(_watch(metadata, path, reasons, retry))
        for path, reasons in NOTICES.items()
    ]
    try:
        done, _ = await asyncio.wait(watches, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for watch in watches:
            watch.cancel()
        await asyncio.gather(*watches, return_exceptions=True)
    on_notice(done.pop().result())


async def _watch(
    metadata: Metadata, path: str, reasons: Mapping[str, str], retry: timedelta
) -> str:
    """Returns the reason once the value announces the end of the machine."""
    etag: str | None = (
        None  # None: gets the current value, because it may have changed before this watch
    )
    pause = retry
    while True:
        try:
            text, etag = await metadata.ask(path, changed_from=etag)
        except OSError as error:
            logger.debug("the value %s could not be read: %s", path, error)
            text, etag = None, None
        if text is not None:
            if text.strip() in reasons:
                return reasons[text.strip()]
            pause = retry
            continue
        await asyncio.sleep(pause.total_seconds())
        pause = min(pause * 2, RETRY_LAST)
