"""The object store: `file://` on a laptop, `gs://` or `s3://` on a fleet. Logs live here, never in a history."""

from pathlib import Path
from urllib.parse import urlsplit

import obstore
from obstore.store import from_url


class Store:
    """Objects under one URL. Every failure to reach it is an `OSError` or one of obstore's exceptions."""

    def __init__(self, url: str) -> None:
        self.url = url
        if urlsplit(url).scheme == "file":
            Path(urlsplit(url).path).mkdir(parents=True, exist_ok=True)
        self._store = from_url(url)

    async def put(self, path: str, data: bytes) -> None:
        """Write the whole object; saying it again writes the same object."""
        await obstore.put_async(self._store, path, data)

    async def get(self, path: str) -> bytes | None:
        """The object's bytes, or None when there is no such object."""
        try:
            result = await obstore.get_async(self._store, path)
        except FileNotFoundError:
            return None
        return (await result.bytes_async()).to_bytes()

    async def folders(self, prefix: str) -> list[str]:
        """The names directly below the prefix that have objects below them, sorted."""
        found = await obstore.list_with_delimiter_async(self._store, prefix)
        return sorted(path.rpartition("/")[2] for path in found["common_prefixes"])

    async def objects(self, prefix: str) -> list[str]:
        """The paths of the objects directly below the prefix, sorted."""
        found = await obstore.list_with_delimiter_async(self._store, prefix)
        return sorted(entry["path"] for entry in found["objects"])
