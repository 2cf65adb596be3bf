"""The IAM policy of a bucket for the people of a cluster with identities. Pure.

Temporal's servers keep people from each other's jobs; the files of the jobs are in the store, which
they reach without Temporal. The conditions restrict each person to the folders of the own jobs.
Sources of the form: https://cloud.google.com/storage/docs/access-control/iam-roles and
https://cloud.google.com/iam/docs/conditions-attribute-reference
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from iris.access.policy import Policy, Role
from iris.model import names, store_paths
from iris.model.errors import InvalidValue, NotFound

_READER = "roles/storage.objectViewer"
_CREATOR = "roles/storage.objectCreator"
_WRITER = "roles/storage.objectUser"


def bucket_of(store: str) -> tuple[str, str]:
    """Returns the bucket of a store and the folder in it, as `bucket_policy` takes them.

    Raises:
        InvalidValue: the store is not a bucket of Google Cloud.
    """
    url = urlsplit(store)
    if url.scheme != "gs" or not url.netloc:
        raise InvalidValue(
            "store", store, "is not a bucket of Google Cloud", "write gs://BUCKET or gs://BUCKET/…"
        )
    return url.netloc, url.path


def members_of(policy: Policy, members: Iterable[tuple[str, str]]) -> dict[str, tuple[Role, str]]:
    """Returns the role and the member of everybody in the policy whom Google knows: the people of
    an issuer whose claim is the address by this address, and the others by `members`.

    Args:
        members: the member of some names.

    Raises:
        NotFound: the policy has no such name.
    """
    roles = {each.name: each.role for each in reversed([*policy.entries])}  # the first one counts
    known = {
        each.name: f"user:{claim}"
        for issuer in policy.issuers
        if issuer.claim == "email"
        for claim, each in issuer.users.items()
    }
    for name, member in members:
        if name not in roles:
            raise NotFound(f"the policy has no {name!r}; iris user list shows all names")
        known[name] = member
    return {name: (roles[name], member) for name, member in known.items()}


def bucket_policy(
    cluster: str, bucket: str, prefix: str, people: Mapping[str, tuple[Role, str]]
) -> dict[str, Any]:
    """Returns the bindings as JSON for `gcloud storage buckets set-iam-policy`.

    A condition that begins with a folder's name also allows to list the folder. Accounts of hosts
    and control planes need the whole store, and are bound without a condition.

    Args:
        prefix: the folder of the store in the bucket; empty if the store is the whole bucket.
        people: the role and the member (`user:ada@lab.org`, `serviceAccount:…`) of each name.
    """
    bindings = []
    for name, (role, member) in sorted(people.items()):
        if role not in (Role.USER, Role.VIEWER):
            bindings.append(_binding(_WRITER, member, f"iris {name}", bucket, prefix, ("",)))
            continue
        title = f"iris {cluster} {name}"
        read = [f"clusters/{cluster}/", f"usage/{cluster}/"]
        if role is Role.USER:
            read += [*_read_by(name), "bundles/"]
            written = _written_by(cluster, name)
            bindings += [
                _binding(_WRITER, member, f"{title}: own", bucket, prefix, written),
                _binding(_CREATOR, member, f"{title}: bundles", bucket, prefix, ["bundles/"]),
            ]
        bindings.append(_binding(_READER, member, f"{title}: read", bucket, prefix, read))
    return {"version": 3, "bindings": bindings}


def _read_by(user: str) -> list[str]:
    """Returns the folders that agents write for this user's jobs."""
    return [f"{folder}/{user}/" for folder in ("logs", "outputs", "checkpoints")]


def _written_by(cluster: str, user: str) -> list[str]:
    """Returns the folders that the user's own commands write."""
    sealed = (store_paths.SEALED_JOB, store_paths.SEALED_SCHEDULE, store_paths.SEALED_USER)
    return [
        *(store_paths.sealed_object(cluster, f"{kind}/{user}/") for kind in sealed),
        f"{store_paths.exec_files_of_user(user)}/",
        store_paths.pool_files(names.pool_queue(cluster, f"{user}/", "")).removesuffix("-"),
    ]


def _binding(
    role: str, member: str, title: str, bucket: str, prefix: str, folders: Sequence[str]
) -> dict[str, Any]:
    root = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
    binding: dict[str, Any] = {"role": role, "members": [member]}
    if paths := [f"{root}{folder}" for folder in folders if f"{root}{folder}"]:
        resource = f"projects/_/buckets/{bucket}/objects/"
        listed = 'api.getAttribute("storage.googleapis.com/objectListPrefix", "")'
        tests = [f'resource.name.startsWith("{resource}{path}")' for path in paths]
        if role != _CREATOR:
            tests += [f'{listed}.startsWith("{path}")' for path in paths]
        binding["condition"] = {"title": title, "expression": " || ".join(tests)}
    return binding
