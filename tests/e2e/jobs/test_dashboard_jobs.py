"""Jobs and their output in the dashboard, on a real cluster."""

import asyncio
import html
import http.client
import json
import re
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest

from iris.client.client import AsyncIrisClient
from iris.client.jobs.lists import JobFilter
from iris.model.states import JobState
from tests.e2e.client import COUNTS, connected
from tests.e2e.cluster import USER, Cluster, a_cluster, eventually

pytestmark = pytest.mark.long


class Event(NamedTuple):
    name: str
    id: str
    lines: list[str]


def opened(cluster: Cluster, path: str, **headers: str) -> http.client.HTTPResponse:
    """The answer of the dashboard, whose body has not been read."""
    record = json.loads((cluster.home / "clusters" / cluster.name / "cluster.json").read_text())
    connection = http.client.HTTPConnection(urlsplit(record["dashboard"]).netloc, timeout=60)
    connection.request("GET", path, headers=headers)
    return connection.getresponse()


def events(answer: http.client.HTTPResponse) -> Iterator[Event]:
    """The events of a stream, as a browser reads them, until the connection ends."""
    fields: dict[str, str] = {}
    while line := answer.readline().decode():
        name, _, value = line.rstrip("\n").partition(": ")
        if name:
            fields[name] = value
        elif fields.get("event"):
            whole = fields.get("data", "").partition('<div class="begun">')[0]
            texts = re.findall(r'class="x">(.*?)</span>', whole)
            yield Event(fields["event"], fields.get("id", ""), [html.unescape(t) for t in texts])
            fields = {}


def test_the_stream_of_a_log_goes_on_after_a_restart_of_the_control_plane() -> None:
    """The dashboard is a part of the control plane. The browser connects again with the position of
    its last event, and gets each line once.
    """
    with a_cluster("--cpu", "2", "--hosts", "1") as cluster, connected(cluster) as client:
        counts = client.submit("sh", "-c", COUNTS, name="counts", workdir=str(cluster.work))
        eventually(lambda: counts.status().state is JobState.RUNNING)
        lines: list[str] = []
        position = ""
        for event in events(opened(cluster, f"/log-stream/{counts.id}")):
            lines, position = lines + event.lines, event.id
            if len(lines) >= 10:
                break
        killed = cluster.kill("controller")
        eventually(lambda: cluster.pid("controller") not in (None, killed))

        def again() -> http.client.HTTPResponse | None:
            try:
                answer = opened(cluster, f"/log-stream/{counts.id}", **{"Last-Event-ID": position})
            except OSError:
                return None
            return answer if answer.status == 200 else None

        answer = eventually(again)
        assert answer is not None
        (cluster.work / "go").touch()
        last = [event for event in events(answer) if [lines.extend(event.lines)]][-1]

        assert last.name == "end"
        assert lines == [*(f"line {n}" for n in range(len(lines) - 1)), f"end {len(lines) - 1}"]
        page = opened(cluster, f"/logs/{counts.id}?find=END").read().decode()
        assert f"end {len(lines) - 1}</span>" in page
        assert opened(cluster, f"/log-text/{counts.id}").read().decode().split("\n")[:-1] == lines


async def test_a_list_in_parts_has_each_job_once_and_counts_them(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each part is read from its place in the list, and the service counts by state."""
    monkeypatch.setenv("IRIS_STATE_DIR", str(cluster.home))
    monkeypatch.setenv("IRIS_USER", USER)
    client = await AsyncIrisClient.connect(cluster.name)
    commands = [*["true"] * 4, "false"]
    jobs = [
        await client.submit(command, name=f"part-{n}", tags={"listed": "x"}, workspace=False)
        for n, command in enumerate(commands)
    ]
    for job in jobs:
        await job.wait()
    wanted, counts = JobFilter(tags=[("listed", "x")]), dict[JobState, int]()
    for _ in range(100):  # the lists of the service follow its histories
        counts = {s: n for s, n in (await client.jobs.count_by_state(wanted)).items() if n}
        if counts == {JobState.SUCCEEDED: 4, JobState.FAILED: 1}:
            break
        await asyncio.sleep(0.1)
    assert counts == {JobState.SUCCEEDED: 4, JobState.FAILED: 1}

    found, start = [], ""
    while True:
        part = await client.jobs.list_page(wanted, limit=2, start=start)
        found += [row.id for row in part.rows]
        if not (start := part.older):
            break

    assert found == [row.id for row in await client.jobs.list(wanted)]
    assert sorted(found) == sorted(job.id for job in jobs)
    for state, count in ((JobState.SUCCEEDED, 4), (JobState.FAILED, 1), (JobState.KILLED, 0)):
        narrow = JobFilter(states=[state], tags=[("listed", "x")])
        assert len(await client.jobs.list(narrow)) == count
    searched = await client.jobs.list_page(JobFilter(text="PART-4"))
    assert searched.rows[0].id == jobs[4].id
    stopped = await client.jobs.list_page(JobFilter(text="no such text"), most=2)
    assert (stopped.rows, stopped.stopped) == ([], True)
