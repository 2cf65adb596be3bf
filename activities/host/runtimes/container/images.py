"""Fetches container images that the machine does not have."""

import re
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

from iris.activities.host import runtimes
from iris.activities.host.runtimes.base import HostFault, JobFault

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.images import Image

#: A function that returns a new access token of the machine's own Google service account, or None
#: if the machine has no such account. The function blocks for seconds.
Token = Callable[[], str | None]

#: The name of the fault if an image could not be fetched, as in `iris.model.host.faults`.
FAULT = "image-pull"
#: The time without progress after which a pull counts as stuck, in seconds.
STALL = 300.0
#: The exit code of an attempt whose image cannot be used. Docker uses it for a command that never
#: ran.
EXIT_CODE = 125

#: Matches the errors of registries and engines for an image that does not exist. Registries do not
#: reveal whether a private image exists: in both cases the answer is "requested access to the
#: resource is denied". An error that names a permission does not match.
_ABSENT = re.compile(
    r"manifest unknown|manifest for \S+ not found|requested access to the resource is"
    r" denied|insufficient_scope"
    r"|repository \S+ not found|name unknown|repository name not known|no matching manifest|invalid"
    r" reference format"
    r"|[^:]: not found$",
    re.IGNORECASE,
)
#: Matches the errors of registries and engines for an image that this kind of machine cannot run.
_FOREIGN = re.compile(
    r"cannot be used on this platform|does not (match|provide) the specified"
    r" platform|unsupported os",
    re.IGNORECASE,
)
#: Matches the beginning of an image's name if the image is in one of Google's registries.
_GOOGLES = re.compile(r"([a-z0-9-]+-docker\.pkg\.dev|([a-z]+\.)?gcr\.io)/")
#: The user name with which a machine logs in to Google's registries; the password is its access
#: token. Source: cloud.google.com/artifact-registry/docs/docker/authentication#token
_WITH_TOKEN = "oauth2accesstoken"  # noqa: S105 - a user name
#: Matches the progress lines of a pull that the user sees.
_SHOWN = re.compile(r"Pulling from|Pull complete|Already exists|Digest:|Status:|Retrying")


def get(
    engine: "DockerClient",
    name: str,
    output: "TextIO",
    stop: threading.Event,
    token: Token = lambda: None,
) -> "Image | None":
    """Returns the image of that name. An image that the machine has is not fetched again, even if
    the registry has a newer one.

    Args:
        output: the file for the progress of a pull, with one line for each step.
        stop: when it is set, the pull ends and the function returns None.
        token: called before a pull from Google's registries. If it returns None, the login of the
            agent's user applies.

    Raises:
        JobFault: no registry has the image, or the name is not valid.
        HostFault: this host could not fetch it.
    """
    library = runtimes.docker_library
    try:
        return engine.images.get(name)
    except library.APIError as error:
        if error.status_code != 404:
            raise _fault_of(name, str(error.explanation or error)) from None
    print(f"fetching the image {name}", file=output, flush=True)
    repository, tag = library.parse_repository_tag(name)
    shown = token() if _GOOGLES.match(name) else None
    login = {"username": _WITH_TOKEN, "password": shown} if shown else None
    try:
        for progress in engine.api.pull(
            repository, tag=tag or "latest", stream=True, decode=True, auth_config=login
        ):
            if stop.is_set():
                return None
            if "error" in progress:
                raise _fault_of(name, progress["error"])
            line = f"{progress.get('id', '')} {progress.get('status', '')}".strip()
            if _SHOWN.search(line):
                print(line, file=output, flush=True)
        return engine.images.get(name)
    except library.APIError as error:
        raise _fault_of(name, str(error.explanation or error)) from None
    except (library.DockerException, library.RequestException) as error:
        raise HostFault(f"the image {name!r} could not be fetched: {error}", FAULT) from None


def _fault_of(name: str, message: str) -> JobFault | HostFault:
    if _ABSENT.search(message):
        return JobFault(
            f"the image {name!r} does not exist, or this cluster may not read it: {message}",
            EXIT_CODE,
        )
    if _FOREIGN.search(message):
        return JobFault(f"the image {name!r} is for another kind of machine: {message}", EXIT_CODE)
    return HostFault(f"the image {name!r} could not be fetched: {message}", FAULT)
