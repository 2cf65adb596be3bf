"""Secrets of jobs: references to values that a host looks up for a program. Jobs, records and histories have only references."""

import posixpath
import re
from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

from iris.model.errors import InvalidValue

#: Shorter values are not masked in logs: they occur by chance, and the masks would show where.
LEAST_MASKED = 6
#: The largest value in bytes. It is the limit of Google Secret Manager, and below Linux's limit of one variable.
MAX_VALUE_BYTES = 64 * 1024
#: Variables that may hold credentials of the agent itself: for its cluster, its object store and its cloud. No job gets them.
AGENT_PREFIXES = ("TEMPORAL_", "GOOGLE_", "CLOUDSDK_", "AWS_", "AZURE_", "IRIS_")
#: What a job may use on a cluster on the user's own machine, where its programs run as that user.
ALL_OF_THE_USERS = ("env:*", "file:/*", "gcp:*")

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: Source: cloud.google.com/secret-manager/docs/reference/rest/v1/projects.secrets.versions/access. A version is a number or an
#: alias such as `latest`.
_ID = r"[A-Za-z0-9_-]{1,255}"
_RESOURCE = re.compile(rf"projects/[a-z0-9][a-z0-9.:-]*/secrets/{_ID}(/versions/[A-Za-z0-9_-]{{1,63}})?")
_LATEST = "/versions/latest"
_REMEDY = "write NAME, NAME=env:VARIABLE, NAME=file:/PATH or NAME=gcp:SECRET, and never the value itself"

#: Parts of names that mean a secret, alone or one after the other.
_SECRETS = ("PASSWORD", "PASSWD", "PASSPHRASE", "SECRET", "SECRETS", "CREDENTIAL", "CREDENTIALS", "APIKEY")
_KEYS = {"API", "ACCESS", "PRIVATE", "AUTH", "ENCRYPTION", "SIGNING", "ACCOUNT"}
#: Last parts of names that mean something about a secret.
_ABOUT = {"FILE", "PATH", "DIR", "ID", "NAME", "URL", "URI", "TYPE", "COUNT", "LENGTH", "SIZE"}
#: Tokens of a tokenizer.
_TEXT_TOKENS = {"PAD", "EOS", "BOS", "UNK", "MASK", "SEP", "CLS"}
#: Has the path of a file.
_PATHS = {"GOOGLE_APPLICATION_CREDENTIALS"}


class SecretKind(StrEnum):
    """Where a host looks up a value."""

    ENV = "env"  # a variable of the agent's environment
    FILE = "file"  # a file of the host
    GCP = "gcp"  # a version of a secret in Google Secret Manager


class SecretSource(NamedTuple):
    """A reference to a value."""

    kind: SecretKind
    #: The variable, the absolute path, or the secret: `projects/P/secrets/S/versions/V`, or `S` in the project of the host.
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


def parse_source(secret: str, text: str) -> SecretSource:
    """Parses the source of a secret.

    Args:
        secret: the variable that the program gets.

    Raises:
        InvalidValue: it is not a reference. The error does not show it, because it may be the value itself.
    """
    kind, _, name = text.partition(":")
    match kind:
        case SecretKind.ENV if _VARIABLE.fullmatch(name):
            return SecretSource(SecretKind.ENV, name)
        case SecretKind.FILE if name[:1] == "/" != name[1:2] and posixpath.normpath(name) == name and "\0" not in name:
            return SecretSource(SecretKind.FILE, name)
        case SecretKind.GCP if re.fullmatch(_ID, name):
            return SecretSource(SecretKind.GCP, name)
        case SecretKind.GCP if (found := _RESOURCE.fullmatch(name)) is not None:
            return SecretSource(SecretKind.GCP, name if found[1] else name + _LATEST)
    raise InvalidValue("secret", secret, "has a source that is not a reference", _REMEDY)


def parse_secret(text: str) -> tuple[str, str]:
    """Parses `NAME[=SOURCE]` and returns the name and the source. The default source is the agent's variable of that name.

    Raises:
        InvalidValue: it has not this form.
    """
    name, given, source = text.partition("=")
    if _VARIABLE.fullmatch(name) is None:
        raise InvalidValue("secret", name, "is not a valid name of an environment variable", _REMEDY)
    return name, str(parse_source(name, source if given else f"{SecretKind.ENV}:{name}"))


def is_variable(name: str) -> bool:
    """Returns whether a shell can export a variable of this name."""
    return _VARIABLE.fullmatch(name) is not None


def resource_of(source: SecretSource, project: str) -> SecretSource:
    """Returns the complete reference of a secret in Google Secret Manager.

    Args:
        project: the project of a secret that names none.
    """
    if source.kind is not SecretKind.GCP or "/" in source.name:
        return source
    return SecretSource(SecretKind.GCP, f"projects/{project}/secrets/{source.name}{_LATEST}")


def check_pattern(field: str, pattern: str) -> None:
    """Checks an entry of the list of secrets that jobs may use.

    Raises:
        InvalidValue: no source matches it.
    """
    kind, _, name = pattern.partition(":")
    start = name.removesuffix("*")
    valid = {
        "env": re.fullmatch("[A-Za-z0-9_]*", start) is not None,
        "file": start.startswith("/") and ".." not in start.split("/"),
        "gcp": start.startswith("projects/") or name == "*",
    }
    if not name or "*" in start or not valid.get(kind, False):
        remedy = "write env:NAME, file:/PATH or gcp:projects/PROJECT/secrets/SECRET, or the beginning of a name followed by *"
        raise InvalidValue(field, pattern, "matches no secret", remedy)


def why_not(source: SecretSource, allowed: Sequence[str]) -> str:
    """Returns why jobs may not use a source; empty: they may.

    Args:
        source: complete, see `resource_of`.
        allowed: the list of the configuration: sources, or the beginnings of sources followed by `*`. A secret of Google's
            stands for all its versions.
    """
    if source.kind is SecretKind.ENV and source.name.upper().startswith(AGENT_PREFIXES):
        return "a variable of this name may hold a credential of the agent itself, which no job gets; use another variable"
    text = str(source)
    for pattern in allowed:
        if pattern.endswith("*"):
            if text.startswith(pattern[:-1]):
                return ""
        elif text == pattern or (source.kind is SecretKind.GCP and text.startswith(f"{pattern}/versions/")):
            return ""
    return "the cluster's configuration does not allow it; add it to bootstrap.secrets"


def looks_secret(name: str) -> bool:
    """Returns whether the name of a variable looks as if its value is a secret: `HF_TOKEN`, `WANDB_API_KEY`, `PGPASSWORD`."""
    parts = [part for part in re.split("[^A-Z0-9]+", name.upper()) if part]
    if not parts or name.upper() in _PATHS or parts[-1] in _ABOUT:
        return False
    if any(part.endswith(_SECRETS) for part in parts):
        return True
    if parts[-1].endswith("TOKEN"):
        return not _TEXT_TOKENS & set(parts[:-1])
    return any(first in _KEYS and second == "KEY" for first, second in pairwise(parts))
