"""Secrets of jobs: references to values for their programs. Jobs, records and histories contain
only references, never values.

References to values of the submitter (`own:`, `env:`, `file:`, `secret:`) are resolved when the job
starts. The values are sealed for the cluster, and references to the sealed values (`sealed:`)
replace the first ones. Hosts resolve all other references: from the environment of their agent,
from a file, or from Google Secret Manager.
"""

import posixpath
import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

from iris.model.errors import InvalidValue
from iris.model.names import is_name
from iris.model.store_paths import (
    SEALED_JOB,
    SEALED_SCHEDULE,
    SEALED_USER,
    sealed_by_user,
    sealed_for_job,
)

#: The length of the shortest value that is masked in logs. Shorter values occur by chance, and
#: masks at these places would reveal the value.
LEAST_MASKED = 6
#: The limit on bytes of a secret's value. It is the limit of Google Secret Manager, and below
#: Linux's limit for one environment variable.
MAX_VALUE_BYTES = 64 * 1024
#: The prefixes of environment variables that may contain credentials of the agent itself: for its
#: cluster, its object store and its cloud. No job can use such a variable of the host, or the file
#: that it names, as a secret.
AGENT_PREFIXES = ("TEMPORAL_", "GOOGLE_", "CLOUDSDK_", "AWS_", "AZURE_", "IRIS_")
#: Patterns of the secrets that jobs may use on a local cluster, where programs run as the cluster's
#: only user. `*` stands for any ending.
ALL_OF_THE_USERS = ("host-env:*", "host-file:/*", "gcp:*")

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: Matches the id of a secret in Google Secret Manager. Source:
#: cloud.google.com/secret-manager/docs/reference/rest/v1/projects.secrets.versions/access
_ID = r"[A-Za-z0-9_-]{1,255}"
#: Matches the resource name of a secret in Google Secret Manager. It may end with a version: a
#: number or an alias such as `latest`.
_RESOURCE = re.compile(
    rf"projects/[a-z0-9][a-z0-9.:-]*/secrets/{_ID}(/versions/[A-Za-z0-9_-]{{1,63}})?"
)
_LATEST = "/versions/latest"
_REMEDY = (
    "write NAME, NAME=env:VARIABLE, NAME=file:PATH or NAME=secret:SECRET for one of your own,"
    " NAME=gcp:SECRET, NAME=host-env:VARIABLE or NAME=host-file:/PATH for one that the host looks"
    " up, and never the value itself"
)
_TOKEN = re.compile("[0-9a-f]{16,64}")

#: A variable is taken for a secret if a part of its name ends with one of these words. Underscores
#: separate the parts of a name.
_SECRETS = (
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "SECRET",
    "SECRETS",
    "CREDENTIAL",
    "CREDENTIALS",
    "APIKEY",
)
_KEYS = {"API", "ACCESS", "PRIVATE", "AUTH", "ENCRYPTION", "SIGNING", "ACCOUNT"}
#: Words at the end of a variable's name that show that the variable contains a property of a
#: secret, not the secret itself.
_ABOUT = {"FILE", "PATH", "DIR", "ID", "NAME", "URL", "URI", "TYPE", "COUNT", "LENGTH", "SIZE"}
#: Words before TOKEN in a variable's name that mean a token of a tokenizer, not a secret.
_TEXT_TOKENS = {"PAD", "EOS", "BOS", "UNK", "MASK", "SEP", "CLS"}
#: Variables that contain the path of a file with a secret, not the secret itself.
_PATHS = {"GOOGLE_APPLICATION_CREDENTIALS"}


class SecretKind(StrEnum):
    """The kind of place at which a secret's value is stored."""

    OWN = "own"  # a variable of the submitter's environment, else the submitter's named secret
    ENV = "env"  # a variable of the submitter's environment
    FILE = "file"  # a file of the submitter's machine
    NAMED = "secret"  # the submitter's named secret, in the store of the cluster
    SEALED = "sealed"  # an object in the store of the cluster, which only its agents can read
    HOST_ENV = "host-env"  # a variable of the agent's environment
    HOST_FILE = "host-file"  # a file of the host
    GCP = "gcp"  # a version of a secret in Google Secret Manager


#: The kinds of references that only the submitter's client can resolve.
OF_SUBMITTER = (SecretKind.OWN, SecretKind.ENV, SecretKind.FILE, SecretKind.NAMED)


class SecretSource(NamedTuple):
    """A reference to the place from which a secret's value is read."""

    kind: SecretKind
    #: Identifies the secret at its place. The form depends on the kind: the name of an environment
    #: variable; the path of a file (absolute if the file is on a host); the name of one of the
    #: user's named secrets; the path of an object with sealed values, below the cluster's folder in
    #: the store; or a secret of Google, as `projects/P/secrets/S/versions/V`, or as `S` in the
    #: project of the host.
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


def parse_secret_source(secret: str, text: str) -> SecretSource:
    """Parses a reference.

    Args:
        secret: the variable that the program gets, for the error.

    Raises:
        InvalidValue: the text is not a reference. The error does not contain the text, because it
            may be the value itself.
    """
    kind, _, name = text.partition(":")
    match kind:
        case SecretKind.OWN | SecretKind.ENV | SecretKind.NAMED | SecretKind.HOST_ENV if (
            _VARIABLE.fullmatch(name)
        ):
            return SecretSource(SecretKind(kind), name)
        case SecretKind.FILE if name and "\0" not in name:
            return SecretSource(SecretKind.FILE, name)
        case SecretKind.SEALED if _is_sealed(name):
            return SecretSource(SecretKind.SEALED, name)
        case SecretKind.HOST_FILE if (
            name[:1] == "/" != name[1:2] and posixpath.normpath(name) == name and "\0" not in name
        ):
            return SecretSource(SecretKind.HOST_FILE, name)
        case SecretKind.GCP if re.fullmatch(_ID, name):
            return SecretSource(SecretKind.GCP, name)
        case SecretKind.GCP if (found := _RESOURCE.fullmatch(name)) is not None:
            return SecretSource(SecretKind.GCP, name if found[1] else name + _LATEST)
    raise InvalidValue("secret", secret, "has an invalid source", _REMEDY)


def parse_secret(text: str) -> tuple[str, str]:
    """Parses `NAME[=SOURCE]` and returns the name and the source. The default source is the
    submitter's secret of that name.

    Raises:
        InvalidValue: the text has another form.
    """
    name, given, source = text.partition("=")
    if _VARIABLE.fullmatch(name) is None:
        raise InvalidValue(
            "secret", name, "is not a valid name of an environment variable", _REMEDY
        )
    parsed = own_secret(name) if not given else parse_secret_source(name, source)
    if parsed.kind is SecretKind.SEALED:
        raise InvalidValue(
            "secret", name, "has a source of the kind sealed:, which is reserved for Iris", _REMEDY
        )
    return name, str(parsed)


def own_secret(name: str) -> SecretSource:
    """Returns the reference to the submitter's secret of this name: a variable of the submitter's
    environment, otherwise a named secret.
    """
    return SecretSource(SecretKind.OWN, name)


def check_secret_name(name: str) -> str:
    """Returns the name unchanged.

    Raises:
        InvalidValue: the text is not a valid name of a variable.
    """
    if not is_variable(name):
        remedy = (
            "use letters, digits and underscores, the first no digit, as in HF_TOKEN; the value"
            " comes from standard input"
        )
        raise InvalidValue("secret", name, "is not a valid name of a secret", remedy)
    return name


def _is_sealed(path: str) -> bool:
    """Returns whether the path has the form of a path to an object with sealed values."""
    kind, *parts = path.split("/")
    *owner, last = parts or [""]
    if not owner or not all(map(is_name, owner)):
        return False
    if kind == SEALED_USER:
        return len(owner) == 1 and is_variable(last)
    return (
        kind in (SEALED_JOB, SEALED_SCHEDULE)
        and len(owner) > 1
        and _TOKEN.fullmatch(last) is not None
    )


def sealed_owner(path: str) -> str:
    """Returns the job, the schedule or the user that owns the object with sealed values."""
    return path.partition("/")[2].rpartition("/")[0]


def sealed_entry(path: str, variable: str) -> str:
    """Returns the name of a variable's value within an object with sealed values."""
    return path.rpartition("/")[2] if path.startswith(f"{SEALED_USER}/") else variable


def sealed_for(secrets: Mapping[str, str], job: str) -> tuple[str, ...]:
    """Returns the objects whose values were sealed for this job only. They are useless after its
    end.
    """
    own = f"{SecretKind.SEALED}:{sealed_for_job(job, '')}"
    found = (
        source.partition(":")[2]
        for source in secrets.values()
        if source.rpartition("/")[0] == own.rstrip("/")
    )
    return tuple(dict.fromkeys(found))


def why_not_sealed(path: str, job: str) -> str:
    """Returns why a job may not use the values of an object; empty if it may. The child jobs of a
    job may use its values.

    Args:
        path: the name of a `SecretSource` of the kind SEALED.
        job: the id of the job.
    """
    owner, user = sealed_owner(path), job.partition("/")[0]
    if path.startswith(f"{SEALED_USER}/"):
        return "" if owner == user else f"it is a secret of the user {owner}"
    return (
        ""
        if f"{job}/".startswith(f"{owner}/")
        else f"it was given to {owner}, and is for this job and its child jobs only"
    )


def shown_source(text: str) -> str:
    """Returns a text that shows users where a value comes from."""
    kind, _, name = text.partition(":")
    if kind == SecretKind.OWN:
        return "its submitter"
    if kind != SecretKind.SEALED:
        return text
    owner, last = sealed_owner(name), name.rpartition("/")[2]
    return (
        f"the secret {last} of {owner}" if name == sealed_by_user(owner, last) else "its submitter"
    )


def is_variable(name: str) -> bool:
    """Returns whether a shell can export a variable of this name."""
    return _VARIABLE.fullmatch(name) is not None


def resource_of(source: SecretSource, project: str) -> SecretSource:
    """Returns the complete reference to a secret in Google Secret Manager. Other references stay
    unchanged.

    Args:
        project: the project for a reference without a project.
    """
    if source.kind is not SecretKind.GCP or "/" in source.name:
        return source
    return SecretSource(SecretKind.GCP, f"projects/{project}/secrets/{source.name}{_LATEST}")


def check_pattern(field: str, pattern: str) -> None:
    """Checks an entry of the list of secrets that jobs may use.

    Raises:
        InvalidValue: no reference can match the entry.
    """
    kind, _, name = pattern.partition(":")
    start = name.removesuffix("*")
    valid = {
        "host-env": re.fullmatch("[A-Za-z0-9_]*", start) is not None,
        "host-file": start.startswith("/") and ".." not in start.split("/"),
        "gcp": start.startswith("projects/") or name == "*",
    }
    if not name or "*" in start or not valid.get(kind, False):
        remedy = (
            "write host-env:NAME, host-file:/PATH or gcp:projects/PROJECT/secrets/SECRET, "
            "or the beginning of a name followed by *"
        )
        raise InvalidValue(field, pattern, "is not a valid entry", remedy)


def why_not(source: SecretSource, allowed: Sequence[str]) -> str:
    """Returns why jobs may not use a secret; empty if they may.

    Args:
        source: a complete reference, from `resource_of`.
        allowed: the configuration's list of references, or of beginnings of references followed by
            `*`. A secret of Google without a version allows all its versions.
    """
    if source.kind is SecretKind.HOST_ENV and source.name.upper().startswith(AGENT_PREFIXES):
        return (
            "a variable of this name may hold a credential of the agent itself, which no job gets;"
            " use another variable"
        )
    text = str(source)
    for pattern in allowed:
        if pattern.endswith("*"):
            if text.startswith(pattern[:-1]):
                return ""
        elif text == pattern or (
            source.kind is SecretKind.GCP and text.startswith(f"{pattern}/versions/")
        ):
            return ""
    return "the cluster's configuration does not allow it; add it to bootstrap.secrets"


def looks_secret(name: str) -> bool:
    """Returns whether the value of a variable with this name is probably a secret: `HF_TOKEN`,
    `WANDB_API_KEY`, `PGPASSWORD`.
    """
    parts = [part for part in re.split("[^A-Z0-9]+", name.upper()) if part]
    if not parts or name.upper() in _PATHS or parts[-1] in _ABOUT:
        return False
    if any(part.endswith(_SECRETS) for part in parts):
        return True
    if parts[-1].endswith("TOKEN"):
        return not _TEXT_TOKENS & set(parts[:-1])
    return any(first in _KEYS and second == "KEY" for first, second in pairwise(parts))
