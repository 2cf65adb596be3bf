"""A cluster of which each process has an identity."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.e2e.access.conftest import Service, a_service
from tests.e2e.access.people import CLUSTER, Principal, base64url
from tests.e2e.cluster import a_home
from tests.e2e.operate.production import OwnCluster


class People(OwnCluster):
    """A cluster of which each process has an identity."""

    service: Service

    def identity_file(self, who: Principal) -> Path:
        """Returns the path of the file with somebody's key."""
        path = self.home / f"{who.name.replace('/', '-')}.identity"
        if not path.exists():
            secret = who.key.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
            clusters = [{"name": self.name, "address": self.address}]
            key = {**who.jwk, "d": base64url(secret)}
            path.touch(0o600)
            path.write_text(json.dumps({"name": who.name, "clusters": clusters, "key": key}))
        return path

    def identity(self, who: Principal) -> dict[str, str]:
        """Returns the environment of somebody's processes."""
        return {"IRIS_IDENTITY": str(self.identity_file(who)), "IRIS_USER": ""}

    def begin(self, *arguments: str, **options: Any) -> Any:
        """Starts a command as the control plane, a machine, or the person `who`."""
        who = options.pop("who", "cp" if arguments[0] == "controller" else "ada")
        return super().begin(*arguments, **{**self.identity(self.service.people[who]), **options})

    def refusals(self, *who: str) -> list[Mapping[str, Any]]:
        """Returns the lines of the audit with what these principals may not do."""
        known = [self.service.people[each].name for each in who]
        return [
            each for each in self.service.audit() if each["who"] in known and not each["allowed"]
        ]


@contextmanager
def a_lab() -> Iterator[People]:
    """A cluster without hosts; afterwards none of its processes is left."""
    with a_service() as service, a_home() as home:
        cluster = People(home, CLUSTER, service.temporal.service.addresses)
        cluster.service = service
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.clear()
