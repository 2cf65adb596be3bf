"""docs/security.md says where the values of secrets are. The table is compared with everything that
a cluster writes.
"""

import base64
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from tests.e2e.cluster import Cluster, a_home, eventually
from tests.searches import command_lines, files_of, files_with

pytestmark = pytest.mark.long

PAGE = (Path(__file__).parents[2] / "docs/security.md").read_text()
#: A task with an actor, so that its job has a private key for actors.
PROGRAM = """
import iris
with iris.ActorServer() as server:
    server.register("one", object())
    open("begun", "w").close()
    server.serve()
"""
CONFIG = """
name: local
platform: {local: }
defaults: {bootstrap: {env_vars: {FOR_ALL: VALUE}}}
scale_groups: {cpu: {type: local_vm, min_slices: 1, max_slices: 1, resources: {cpu: 4, memory: 8g}}}
"""


def planted(what: str) -> str:
    """Returns a value that nothing else on this machine has."""
    return f"{what}-{uuid4().hex}"


@contextmanager
def a_cluster_with(configuration: str, **env: str) -> Iterator[Cluster]:
    """A cluster that was started from a shell with these variables."""
    with a_home() as home:
        cluster = Cluster(home)
        cluster.file("cluster.yaml").write_text(configuration)
        try:
            started = (
                "cluster",
                "start",
                "--local",
                "-d",
                "--config",
                str(cluster.file("cluster.yaml")),
            )
            cluster.iris(*started, within=240, **env)
            yield cluster
        finally:
            try:
                cluster.iris("cluster", "stop", "local", "--yes", code=None)
            finally:
                cluster.clear()


def listed() -> dict[str, set[str]]:
    """Returns the places that the page names for each value."""
    table = PAGE.partition("machine has these values of a running job, and nowhere else:\n\n")[
        2
    ].partition("\n\n")[0]
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in table.splitlines()[2:]]
    return {value: set(places.split(", ")) - {"nothing"} for value, places in rows}


def place(cluster: Cluster, path: Path) -> str:
    """Returns the page's name for a place where a cluster writes."""
    parts = path.relative_to(cluster.home).parts
    if path.name.startswith("temporal.sqlite"):
        return "database"
    if "store" in parts:
        return "store"
    return {"launch.json": "record of the attempt", "state.json": "record of the attempt"}.get(
        path.name, f"`{path.name}`"
    )


def forms_of(line: str) -> list[bytes]:
    """Returns the forms in which a private key of a line could be somewhere."""
    if not line:
        return []
    text = line.split()[-1]
    return [text.encode(), base64.b64decode(text), base64.b64decode(text).hex().encode()]


def forms_of_pem(pem: bytes) -> list[bytes]:
    """Returns the forms in which the private key of a PEM file could be somewhere."""
    lines = pem.partition(b"-----END PRIVATE KEY")[0].splitlines()[1:]
    key = base64.b64decode(b"".join(lines))
    return [*lines, key, base64.b64encode(key), key.hex().encode()]


def test_each_secret_is_where_the_page_says_and_nowhere_else() -> None:
    """A value that an operator believes to be in one place may not be in a log or a command line as
    well.
    """
    secret, mine, in_file = map(planted, ("secret", "mine", "in-file"))
    variable, for_all, path = map(planted, ("variable", "for-all", "path"))
    with a_cluster_with(CONFIG.replace("VALUE", for_all), OURS=secret) as cluster:
        (file := cluster.file("in-file")).write_text(in_file)
        secrets = (
            "--secret",
            "OURS=host-env:OURS",
            "--secret",
            "MINE",
            "--secret",
            f"IN_FILE=file:{file}",
        )
        options = (
            *secrets,
            "--env",
            f"OWN={variable}",
            "--notify",
            f"http://127.0.0.1:9/{path}",
            "--cpu",
            "1",
        )
        command = ("--workdir", str(cluster.work), "--", sys.executable, "-c", PROGRAM)
        cluster.iris("secret", "set", "NAMED", "--from-file", str(file))
        cluster.iris("submit", "-d", "-n", "train", *options, *command, MINE=mine)
        cluster.there_is("begun")
        (record,) = cluster.home.rglob("attempts/*/state.json")
        (keys,) = cluster.home.rglob("secret.keys")
        (slice_key,) = cluster.home.rglob("slice.key")
        (certificate,) = eventually(lambda: list(cluster.home.rglob("actors/*/certificate.pem")))
        (sealed,) = cluster.home.rglob("sealed/local")
        assert sorted(each.relative_to(sealed).parts[0] for each in files_of(sealed)) == [
            "job",
            "user",
        ]
        attempt = json.loads(record.read_text())["token"]
        values = {
            "`--secret`": [secret.encode(), mine.encode(), in_file.encode()],
            "private keys for users' secrets": [
                part for line in keys.read_text().split("\n") for part in forms_of(line)
            ],
            "`--env`": [variable.encode()],
            "`bootstrap.env_vars`": [for_all.encode()],
            "address of `--notify`": [path.encode()],
            "private key of a slice": [slice_key.read_bytes().strip()],
            "token of an attempt": [attempt.encode(), base64.b64decode(attempt)],
            "private key of a job's actors": forms_of_pem(certificate.read_bytes()),
        }
        kept = [
            each
            for each in files_of(cluster.home)
            if each not in (cluster.file("cluster.yaml"), file)
        ]
        found = {
            name: {place(cluster, each) for each in files_with(kept, *forms)}
            for name, forms in values.items()
        }
        lines = "\n".join(command_lines()).encode()
        shown = [name for name, forms in values.items() if any(form in lines for form in forms)]
        cluster.iris("cancel", "train")

    assert shown == []
    assert found == listed()
