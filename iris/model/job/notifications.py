"""Notifications: the webhooks that Iris calls when a job has ended, and the machines that it must
not call.
"""

import re
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator

from iris.model.errors import InvalidValue

#: The value of the search attribute `IrisKind` for the workflows that each call one webhook at the
#: end of a job. The ids of these workflows contain it, too.
KIND_NOTIFICATION = "notification"
#: The limit on webhooks of a job.
MAX_NOTIFY = 5
#: The limit on characters of a webhook's URL.
MAX_URL = 2_000
#: The addresses of cloud metadata services that are not link-local: Amazon's and Google's over
#: IPv6, Azure's, Alibaba's and Oracle's. A webhook must not have such an address, because these
#: services give a machine its own credentials.
_METADATA = frozenset(
    map(
        ip_address,
        ("fd00:ec2::254", "fd20:ce::254", "168.63.129.16", "100.100.100.200", "192.0.0.192"),
    )
)
#: The IPv6 addresses that a NAT64 gateway translates to IPv4 addresses. For a webhook with such an
#: address, the IPv4 address is checked, too.
_NAT64 = ip_network("64:ff9b::/96")
#: The range that contains all IPv6 addresses of machines on the Internet. An address outside this
#: range is not public, even if an older Python version says that it is.
_PUBLIC_IPV6 = ip_network("2000::/3")
#: Addresses of protocols and relays that older Python versions wrongly treat as public.
_NOT_PUBLIC = (ip_network("192.0.0.0/24"), ip_network("192.88.99.0/24"), ip_network("3fff::/20"))
#: The address ranges of private networks.
_PRIVATE = tuple(map(ip_network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")))
_TEXT = re.compile(r"[!-~]+")  # the characters that a request line may have


def parse_webhook(text: str) -> str:
    """Returns the URL unchanged.

    Raises:
        InvalidValue: the text is not an HTTP URL. The error does not contain the text, which may
            have a secret in it.
    """
    if "://" not in text:
        remedy = "write https://HOST/PATH; a command runs in your own shell: iris wait JOB; COMMAND"
        raise InvalidValue("notify", text[:60], "is not the address of a webhook", remedy)
    shown = text.split("://")[0][:20] + "://…"
    if len(text) > MAX_URL:
        raise InvalidValue(
            "notify",
            shown,
            f"has {len(text):,} characters",
            f"use an address of at most {MAX_URL:,}",
        )
    try:
        url = urlsplit(text)
        host, _ = url.hostname, url.port
    except ValueError as error:
        raise InvalidValue(
            "notify", shown, f"is not a valid address: {error}", "write https://HOST/PATH"
        ) from None
    if url.scheme not in ("http", "https"):
        raise InvalidValue("notify", shown, "is not an HTTP address", "write https://HOST/PATH")
    if not host or _TEXT.fullmatch(text) is None:
        remedy = (
            "write https://HOST/PATH, with other characters than ASCII as %XX, and the name of the"
            " host in ASCII"
        )
        raise InvalidValue(
            "notify", shown, "has no host, or characters that an address cannot have", remedy
        )
    if "@" in url.netloc:
        raise InvalidValue(
            "notify",
            shown,
            "has a user and a password, which are not sent",
            "put a token into the path or the query",
        )
    return text


def check_webhooks(urls: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the webhooks of a job without repetitions.

    Raises:
        InvalidValue: there are too many, or one is not valid.
    """
    for url in urls:
        parse_webhook(url)
    if len(urls) > MAX_NOTIFY:
        raise InvalidValue(
            "notify", f"{len(urls)} addresses", "are too many", f"give a job at most {MAX_NOTIFY}"
        )
    return tuple(dict.fromkeys(urls))


def shown_webhook(url: str) -> str:
    """Returns the part of a URL to show: the URLs of chat services have a secret in their path."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}" + (
        "/…" if parts.path.strip("/") or parts.query else ""
    )


def notification_workflow(cluster: str, job: str, run_id: str, index: int) -> str:
    """Returns the id of the workflow that calls one webhook at the end of a job.

    Args:
        run_id: the first run of the job.
        index: the place of the webhook in the job's list.
    """
    return f"{cluster}/{KIND_NOTIFICATION}/{job}/{run_id}/{index}"


def refusal(address: str, own: frozenset[str], *, local: bool) -> str:
    """Returns why the control plane must not call the machine with this IP address; empty if it
    may.

    A control plane can reach what the users of the cluster cannot: its own machine, its network,
    and the service that gives the machine its credentials. So it calls only machines on the
    Internet. The control plane of a local cluster also calls its own machine and its network, which
    the user's programs can reach anyway.

    Args:
        own: the IP addresses of the control plane's machine.
        local: whether this is the control plane of a local cluster, whose programs run on this
            machine, too.
    """
    found = (_refusal(each, own, local=local) for each in _meant(ip_address(address.split("%")[0])))
    return next(filter(None, found), "")


def _refusal(address: IPv4Address | IPv6Address, own: frozenset[str], *, local: bool) -> str:
    if address in _METADATA or address.is_link_local:
        kind = "a link-local address," if address.is_link_local else "an address"
        return f"{address} is {kind} at which machines get their credentials"
    own_machine = address.is_loopback or address.is_unspecified
    if address.is_multicast or (address.is_reserved and not own_machine):
        return f"{address} is not the address of one machine"
    if own_machine or str(address) in own:
        return "" if local else f"{address} is the control plane's own machine"
    if _is_public(address) or (local and any(address in network for network in _PRIVATE)):
        return ""
    return (
        f"{address} is not a public address; a job can call it: iris submit --after-any JOB -- curl"
        " ADDRESS"
    )


def _is_public(address: IPv4Address | IPv6Address) -> bool:
    listed = address.is_global and not any(address in network for network in _NOT_PUBLIC)
    return listed and (isinstance(address, IPv4Address) or address in _PUBLIC_IPV6)


def _meant(address: IPv4Address | IPv6Address) -> tuple[IPv4Address | IPv6Address, ...]:
    """Returns the address, or the IPv4 addresses that it stands for: two for a Teredo tunnel, one
    for each end.
    """
    if isinstance(address, IPv4Address):
        return (address,)
    if address in _NAT64:
        return (IPv4Address(int(address) & 0xFFFFFFFF),)
    if address.teredo is not None:
        return (*address.teredo, address)
    return (address.ipv4_mapped or address.sixtofour or address,)


#: The webhooks that Iris calls at the end of a job.
Webhooks = Annotated[tuple[str, ...], AfterValidator(check_webhooks)]
