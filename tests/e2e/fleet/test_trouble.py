"""What goes wrong on a host: a clear reason for whoever it concerns, and an agent that takes the
next task all the same.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster, a_cluster, eventually, until
from tests.small_disk import small_disk

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """One whose store and hosts may suffer."""
    with a_cluster("--cpu", "2", "--hosts", "1", "--ephemeral") as running:
        yield running


@pytest.fixture(autouse=True)
def _the_agent_is_alive_afterwards(cluster: Cluster) -> Iterator[None]:
    """The same one as before, and it takes work."""
    host = cluster.only_host()
    before = cluster.pid("agent", host)
    yield
    assert (
        cluster.iris("submit", "--constraint", "scale-group = local-cpu", "--", "echo", "fine").out
        == "fine\n"
    )
    assert cluster.pid("agent", host) == before


def store(cluster: Cluster) -> Path:
    return cluster.home / "clusters" / cluster.name / "store"


def test_a_bundle_that_is_not_what_its_name_says_is_never_run(cluster: Cluster) -> None:
    """Somebody has written into the store: every host would find the same, so none is to blame, and
    the reason says so.
    """
    project = cluster.work / "tampered"
    project.mkdir()
    (project / "hello.sh").write_text("echo hello")
    send = ("submit", "-n", "tampered", "-q", "--workspace", str(project))
    cluster.iris(*send, "--cpu", "100", "--", "sh", "hello.sh")  # which no host can take
    (bundle,) = (store(cluster) / "bundles").iterdir()
    cluster.iris("cancel", "tampered")
    cluster.iris("wait", "tampered", code=126)
    bundle.write_bytes(bundle.read_bytes()[:-30])
    cluster.iris(*send, "--", "sh", "hello.sh")
    assert "is damaged" in eventually(lambda: cluster.status("tampered")["tasks"][0]["reason"])
    cluster.iris("cancel", "tampered")
    cluster.iris("wait", "tampered", code=126)
    bundle.unlink()
    assert (
        cluster.iris(
            "submit", "-n", "tampered", "--workspace", str(project), "--", "sh", "hello.sh"
        ).out
        == "hello\n"
    )


def test_a_store_that_goes_away_stops_no_program_and_costs_no_line(cluster: Cluster) -> None:
    """What was written meanwhile is there when it is back."""
    cluster.submit(
        "steady",
        "--",
        "sh",
        "-c",
        f"echo before; touch up; {until('go')}; seq 20000; touch written; {until('end')}",
    )
    cluster.there_is("up")
    eventually(lambda: cluster.logs("steady") == ["before"])
    away = store(cluster).rename(cluster.home / "away")
    store(cluster).write_text("in the way")  # else it would be made anew
    cluster.file("go").touch()
    cluster.there_is("written")
    store(cluster).unlink()
    away.rename(store(cluster))
    cluster.file("end").touch()
    cluster.iris("wait", "steady")
    assert cluster.logs("steady") == ["before", *(str(number) for number in range(1, 20001))]


def test_a_line_without_an_end_and_bytes_that_are_no_text_are_kept(cluster: Cluster) -> None:
    """20 MB in one line, and every byte there is."""
    everything = bytes(range(256)) * 100
    program = (
        "import sys; out = sys.stdout.buffer; out.write(b'x' * 20_000_000 + b'\\n');"
        " out.write(bytes(range(256)) * 100)"
    )
    cluster.submit("bytes", "--", "python3", "-c", program)
    cluster.iris("wait", "bytes")
    shown = cluster.iris("logs", "bytes").raw_out
    assert shown.startswith(b"x" * 20_000_000 + b"\n")
    assert shown[20_000_001:] == everything + b"\n"


def test_a_disk_that_is_full_is_named_and_the_agent_goes_on(cluster: Cluster) -> None:
    """The program gets the error and its true end; when there is no room to begin, the host says
    so, and nobody pays.
    """
    with small_disk(cluster.home / "small", 8_000) as disk:
        where = [
            "--cluster",
            cluster.address,
            "agent",
            "--join",
            "--run-as=root",
            "--host-id",
            "small",
            "--dir",
            str(disk),
        ]
        agent = cluster.begin(
            *where, "--cpu", "1", "--memory", "1g", "--disk", "1g", "--attribute", "disk=small"
        )
        eventually(lambda: "small" in cluster.host_ids(), every=0.3)
        there = ("--workdir", str(cluster.work), "--constraint", "disk=small")
        fill = f"head -c 20000000 /dev/zero > {disk}/full; echo $?; exit 5"
        ended = cluster.iris("submit", "-n", "filler", *there, "--", "sh", "-c", fill, code=125)
        assert "code 5" in ended.err
        cluster.iris("submit", "-n", "late", "-q", *there, "--", "echo", "late")
        eventually(
            lambda: "the disk for tasks is full on this host" in cluster.iris("explain", "late").out
        )
        cluster.iris("cancel", "late")
        cluster.iris("wait", "late", code=126)
        assert agent.process.poll() is None
        agent.interrupt()
        agent.ends(code=None)
