"""Container images: the one that is asked for, fetched if the machine has not got it."""

import re
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

from iris.activities.runtimes.base import CannotStart, HostUnable

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.images import Image

#: An access token of the machine's own service account with Google, new at every call; None: it has none. Blocks for seconds.
Token = Callable[[], str | None]

#: The name of the fault when an image could not be fetched, as in `iris.faults`.
FAULT = "image-pull"
#: Without a word of progress for so long, in seconds, a pull has got stuck.
STALL = 300.0
#: The shell's for a command that never came to be run.
EXIT_CODE = 125

#: What registries and engines say of an image that is nowhere. Whether a private one is there registries do not say to strangers:
#: "requested access to the resource is denied" is the answer to both. A refusal that names a permission is another matter.
_ABSENT = re.compile(
    r"manifest unknown|manifest for \S+ not found|requested access to the resource is denied|insufficient_scope"
    r"|repository \S+ not found|name unknown|repository name not known|no matching manifest|invalid reference format"
    r"|[^:]: not found$",
    re.IGNORECASE,
)
#: Google's registries, to which a machine shows its token under this name.
#: Source: cloud.google.com/artifact-registry/docs/docker/authentication#token
_GOOGLES = re.compile(r"([a-z0-9-]+-docker\.pkg\.dev|([a-z]+\.)?gcr\.io)/")
_WITH_TOKEN = "oauth2accesstoken"
#: Of the many lines of a pull these are worth showing.
_SHOWN = re.compile(r"Pulling from|Pull complete|Already exists|Digest:|Status:|Retrying")


def get(
    engine: "DockerClient", name: str, output: "TextIO", stop: threading.Event, token: Token = lambda: None
) -> "Image | None":
    """The image of that name. What is here is not looked for anew, whatever the registry has under the name by now.

    Args:
        output: what a pull says goes here, a line for each step.
        stop: once it is set the pull is left, and None comes back.
        token: is asked for before a pull from Google's registries. With none, whatever the agent's user is logged in with holds.

    Raises:
        CannotStart: it is in no registry, or cannot be.
        HostUnable: it could not be fetched by this host.
    """
    from docker.errors import APIError, DockerException
    from docker.utils import parse_repository_tag
    from requests import RequestException

    try:
        return engine.images.get(name)
    except APIError as error:
        if error.status_code != 404:
            raise _refused(name, str(error.explanation or error)) from None
    print(f"fetching the image {name}", file=output, flush=True)
    repository, tag = parse_repository_tag(name)
    shown = token() if _GOOGLES.match(name) else None
    login = {"username": _WITH_TOKEN, "password": shown} if shown else None
    try:
        for said in engine.api.pull(repository, tag=tag or "latest", stream=True, decode=True, auth_config=login):
            if stop.is_set():
                return None
            if "error" in said:
                raise _refused(name, said["error"])
            line = f"{said.get('id', '')} {said.get('status', '')}".strip()
            if _SHOWN.search(line):
                print(line, file=output, flush=True)
        return engine.images.get(name)
    except APIError as error:
        raise _refused(name, str(error.explanation or error)) from None
    except (DockerException, RequestException) as error:
        raise HostUnable(f"the image {name!r} could not be fetched: {error}", FAULT) from None


def _refused(name: str, said: str) -> CannotStart | HostUnable:
    if _ABSENT.search(said):
        return CannotStart(f"there is no image {name!r}, or none that this cluster may read: {said}", EXIT_CODE)
    return HostUnable(f"the image {name!r} could not be fetched: {said}", FAULT)
