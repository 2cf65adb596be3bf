"""Notifications: the addresses that Iris calls when a job has ended, what it sends, and which machines it must not call."""

import re
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator

from iris.model.errors import InvalidValue

#: The kind of a workflow that calls one address, as lists show it.
KIND_NOTIFICATION = "notification"
NOTIFICATION_TYPE = "NotificationWorkflow"
#: The most addresses of a job.
MAX_NOTIFY = 5
#: The most characters of an address.
MAX_URL = 2_000
#: Services that give a machine its own credentials or settings, at addresses that are not link-local: Amazon's and Google's over
#: IPv6, Azure's, and Alibaba's.
_METADATA = frozenset(map(ip_address, ("fd00:ec2::254", "fd20:ce::254", "168.63.129.16", "100.100.100.200")))
#: IPv6 addresses that stand for IPv4 addresses behind a gateway.
_NAT64 = ip_network("64:ff9b::/96")
_TEXT = re.compile(r"[!-~]+")  # what a request line can have


def parse_webhook(text: str) -> str:
    """Returns the address.

    Raises:
        InvalidValue: it is no HTTP address. The error does not contain the address, which may have a secret in it.
    """
    if "://" not in text:
        remedy = "write https://HOST/PATH; a command runs in your own shell: iris wait JOB; COMMAND"
        raise InvalidValue("notify", text[:60], "is not the address of a webhook", remedy)
    shown = text.split("://")[0][:20] + "://…"
    if len(text) > MAX_URL:
        raise InvalidValue("notify", shown, f"has {len(text):,} characters", f"use an address of at most {MAX_URL:,}")
    try:
        url = urlsplit(text)
        host, _ = url.hostname, url.port
    except ValueError as error:
        raise InvalidValue("notify", shown, f"is not a valid address: {error}", "write https://HOST/PATH") from None
    if url.scheme not in ("http", "https"):
        raise InvalidValue("notify", shown, "is not an HTTP address", "write https://HOST/PATH")
    if not host or _TEXT.fullmatch(text) is None:
        remedy = "write https://HOST/PATH, with other characters than ASCII as %XX, and the name of the host in ASCII"
        raise InvalidValue("notify", shown, "has no host, or characters that an address cannot have", remedy)
    if "@" in url.netloc:
        raise InvalidValue(
            "notify", shown, "has a user and a password, which are not sent", "put a token into the path or the query"
        )
    return text


def check_webhooks(urls: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the addresses of a job, each once.

    Raises:
        InvalidValue: there are too many, or one is not valid.
    """
    for url in urls:
        parse_webhook(url)
    if len(urls) > MAX_NOTIFY:
        raise InvalidValue("notify", f"{len(urls)} addresses", "are too many", f"give a job at most {MAX_NOTIFY}")
    return tuple(dict.fromkeys(urls))


def shown_webhook(url: str) -> str:
    """Returns what is shown of an address: those of chat services have a secret in their path."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}" + ("/…" if parts.path.strip("/") or parts.query else "")


def notification_workflow(cluster: str, job: str, run_id: str, index: int) -> str:
    """Returns the id of the workflow that calls one address at the end of a job.

    Args:
        run_id: the first run of the job.
        index: the place of the address among those of the job.
    """
    return f"{cluster}/{KIND_NOTIFICATION}/{job}/{run_id}/{index}"


def refusal(address: str, own: frozenset[str], *, local: bool) -> str:
    """Returns why the control plane does not call a machine, by its IP address; empty: it may.

    A control plane can reach what the users of the cluster cannot: its own machine, and the service that gives the machine its
    credentials. Machines of a private network are allowed: the programs of the users run in it.

    Args:
        own: the IP addresses of the control plane's machine.
        local: whether the control plane is that of a local cluster, whose programs run on this machine too.
    """
    meant = _meant(ip_address(address.split("%")[0]))
    if meant in _METADATA or meant.is_link_local:
        return f"{meant} is a link-local address, at which machines get their credentials"
    own_machine = meant.is_loopback or meant.is_unspecified
    if meant.is_multicast or (meant.is_reserved and not own_machine):
        return f"{meant} is not the address of one machine"
    if not local and (own_machine or str(meant) in own):
        return f"{meant} is the control plane's own machine"
    return ""


def _meant(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address


#: The addresses that are called at the end of a job.
Webhooks = Annotated[tuple[str, ...], AfterValidator(check_webhooks)]
