"""Replaces the key that seals users' secrets, and seals the secrets in the store again."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from iris.client.connect.clusters import ClusterRecord, cluster_dir
from iris.client.connect.key_files import write_key_file
from iris.client.connect.secret_keys import FILE, publish_key, read_secret_keys, today
from iris.client.logs.follow import reading_from
from iris.model import names, store_paths
from iris.model.errors import InvalidValue, Rejected
from iris.model.sealed import (
    KEY_BYTES,
    MAX_OBJECT_BYTES,
    Place,
    PrivateKeys,
    SealedObject,
    SealedWith,
    key_id,
    keys_text,
    public_of,
    rotated,
    seal,
)
from iris.storage.object_store import Store


class Rotation(NamedTuple):
    """The result of a key rotation."""

    #: The file with the cluster's private keys for secret values.
    file: Path
    #: The id of the key that seals secret values from now on.
    key: str
    #: The number of secret values that were sealed again with the new key.
    sealed_again: int
    #: The number of keys that were removed because no secret value is sealed with them.
    removed: int

    @property
    def facts(self) -> dict[str, Any]:
        """The rotation as JSON."""
        return {**self._asdict(), "file": str(self.file)}


def keys_file(record: ClusterRecord) -> Path:
    """Returns the file with the private keys of a cluster whose control plane is on this machine.

    Raises:
        Rejected: the keys are not on this machine.
    """
    if path := os.environ.get(names.ENV_SECRET_KEYS, ""):
        return Path(path).expanduser()
    file = cluster_dir(record.name) / FILE
    if file.exists():
        return file
    raise Rejected(
        f"the keys of cluster {record.name} are not on this machine; run this command on the"
        f" machine of its control plane, or name the file of keys: {names.ENV_SECRET_KEYS}=FILE"
    )


async def rotate_keys(record: ClusterRecord) -> Rotation:
    """Makes the next key the current key, adds a new next key to the file, and seals the secrets in
    the store again.

    The hosts already have the key that becomes the current one, since the rotation before. Agents
    read the file at each use. The earlier key stays in the file until the next rotation, and longer
    if a value is still sealed with it.

    Raises:
        InvalidValue: the file cannot be used.
        Rejected: the file is not on this machine, or is the file of another cluster.
        IrisError: the store does not answer.
    """
    file = keys_file(record)
    known, store = read_secret_keys(file), Store(record.store)
    with reading_from(store, "the secrets"):
        published = await store.get(store_paths.secret_key(record.name), most=1_000)
        if published is not None and published.decode(errors="replace").strip() not in _published(
            known.private
        ):
            problem = (
                "does not contain the key with which the secrets of cluster"
                f" {record.name} are sealed"
            )
            raise InvalidValue(
                names.ENV_SECRET_KEYS,
                file,
                problem,
                "name the key file of that cluster's control plane",
            )
        used = {
            value.key
            for _, found in await _objects(store, record.name)
            for value in found.values.values()
        }
        keys = PrivateKeys(rotated(known.private.keys, os.urandom(KEY_BYTES), sorted(used)))
        write_key_file(file, keys_text(keys.keys, today(), known.text))
        await publish_key(record.store, record.name, read_secret_keys(file))
        count = 0
        for path, found in await _objects(store, record.name):
            count += await _seal_again(store, record.name, path, found, keys)
    removed = len(set(known.private.keys) - set(keys.keys))
    return Rotation(file, key_id(keys.public), count, removed)


def _published(keys: PrivateKeys) -> Iterator[str]:
    return (public_of(key).hex() for key in keys.keys)


async def _objects(store: Store, cluster: str) -> list[tuple[str, SealedObject]]:
    """Returns the objects with sealed values by their paths."""
    folder, found = store_paths.sealed_object(cluster, ""), []
    for each in await store.stored(folder.rstrip("/")):
        data = (
            await store.get(each.path, MAX_OBJECT_BYTES) if each.size <= MAX_OBJECT_BYTES else None
        )
        if data is not None:
            try:
                found.append(
                    (each.path.removeprefix(folder), SealedObject.model_validate_json(data))
                )
            except ValidationError:
                continue  # no host could open it
    return found


async def _seal_again(
    store: Store, cluster: str, path: str, found: SealedObject, keys: PrivateKeys
) -> int:
    """Seals the values of an object with the current key, and returns their number."""
    values, current = dict(found.values), key_id(keys.public)
    for name, value in found.values.items():
        place = Place(cluster, path, name)
        if value.key != current:
            try:
                opened = keys.open(value, place)
            except (SealedWith, ValueError):
                continue  # no host can open it either
            values[name] = seal(keys.public, opened, place, os.urandom(KEY_BYTES))
    if values == found.values:
        return 0
    data, target = (
        found.model_copy(update={"values": values}).model_dump_json().encode(),
        store_paths.sealed_object(cluster, path),
    )
    if await store.modified(target) is not None:  # it was not deleted meanwhile, with its job
        await store.put(target, data)
    return sum(values[name] != found.values[name] for name in values)
