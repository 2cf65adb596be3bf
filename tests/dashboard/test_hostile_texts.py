"""Pages about jobs whose names, commands, reasons and output try to be more than text."""

import re
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import quote

import pytest

from iris.client.client import AsyncIrisClient
from iris.client.jobs.explanation import Explanation
from iris.client.jobs.lists import JobPage
from iris.client.jobs.rows import JobRow
from iris.client.jobs.submitted import Submission
from iris.client.logs.source import LogSource
from iris.dashboard.app import Dashboard
from iris.dashboard.reader import Reader
from iris.model import store_paths
from iris.model.job.attempts import Account, AttemptRecord
from iris.model.job.status import JobStatus, TaskStatus
from iris.model.states import JobState, TaskState
from iris.model.units import GIB
from iris.storage.log_format import MAX_PIECE, Stream, encode
from iris.storage.object_store import Store
from iris.usage.series import Series, sample
from iris.usage.summary import JobUse, TaskUse
from tests.builders import NOON, a_spec, at, some
from tests.dashboard.asgi import get

EVIL = "\"'><script>alert(1)</script>&lt;{{ 7 * 7 }}\x1b[2J\u202egnp\u2066\x00 onload=alert(1)"
#: Any client of the service can start a workflow with such an id.
JOB, RUN = "ada/tr'ain\"<i>", "0123456789abcdef"
LONG = "x" * 1_000_000


class Jobs:
    """A client that answers with the worst that a program or another client can write."""

    def __init__(self, tasks: Sequence[TaskStatus], text: str) -> None:
        self._text = text
        self._status = JobStatus(
            id=JOB,
            state=JobState.FAILED,
            reason=text,
            user=text[:300],
            submitted_at=NOON,
            started_at=at(1),
            finished_at=at(9),
            tasks=tuple(tasks),
        )

    def row(self, job: str = JOB) -> JobRow:
        text, short = self._text, self._text[:300]
        return JobRow(
            id=job,
            state=JobState.FAILED,
            user=short,
            submitted_at=NOON,
            command=text,
            priority=short,
            device=short,
            reason=text,
            tags={short: short},
            note=text,
            run_id=f"run of {job}",
        )

    async def list_page(self, *_: Any, **__: Any) -> JobPage:
        rows = [self.row(), *(self.row(f"{self._text[:200]}/{n}/child") for n in range(3))]
        return JobPage(rows, "2026-01-01T00:00:00Z~1", False)

    async def count_by_state(self, *_: Any) -> dict[JobState, int]:
        return dict.fromkeys(JobState, 3)

    async def status(self, *_: Any) -> JobStatus:
        return self._status

    async def explain(self, *_: Any) -> Explanation:
        record = AttemptRecord(
            number=1,
            hosts=(self._text[:300],),
            placed_at=at(1),
            started_at=at(2),
            ended_at=at(9),
            account=Account.FAILURES,
            reason=self._text,
            ends=(),
        )
        return Explanation(
            id=JOB,
            state=JobState.FAILED,
            message=self._text,
            attempts={0: (record,)},
            attempts_unknown=self._text,
            children=(self.row(f"{JOB}/child"),),
        )

    async def submission(self, *_: Any) -> Submission:
        command = self._text.replace("\x00", "")[:50_000]
        spec = a_spec(command=(command,), env={command[:1000].replace("=", ""): "secret value"})
        return Submission(spec=spec, priority=self._text[:300], page="", run_id=RUN)

    async def use_over_time(self, *_: Any) -> JobUse:
        series = Series().with_sample(0, 60, sample(60, 50, GIB, None, None, None))
        return JobUse(
            job=self._text[:300],
            requested=some(),
            tasks=(TaskUse(task=0, attempt=1, series=series),),
        )

    async def runs(self, *_: Any) -> list[str]:
        return ["a", "b", "c"]

    async def run(self, *_: Any) -> str:
        return "a"

    async def log_source(self, *_: Any) -> LogSource:
        return LogSource(run_id=RUN, tasks=len(self._status.tasks))

    async def wait_until_ended(self, *_: Any) -> None:
        return None

    def page(self, *_: Any) -> str:
        return ""


async def dashboard(directory: Path, text: str, tasks: int = 1) -> Dashboard:
    """The application for a job with this text everywhere, also in its output."""
    return Dashboard(Reader(await a_log(directory, text, tasks)))


async def a_log(directory: Path, text: str, tasks: int = 1) -> AsyncIrisClient:
    """A client of a cluster with such a job."""
    store = Store(f"file://{directory}", create=True)
    data = text.encode(errors="replace").replace(b"\n", b" ")
    pieces = [data[start : start + MAX_PIECE] for start in range(0, len(data), MAX_PIECE)]
    record = encode(
        1_700_000_000_000,
        Stream.STDERR,
        [(piece, place + 1 < len(pieces)) for place, piece in enumerate(pieces)],
    )
    binary = encode(1_700_000_000_001, Stream.STDOUT, [(bytes(range(11, 256)), False)])
    await store.put(
        store_paths.log_chunk(store_paths.attempt_logs(JOB, RUN, 0, 1), 0), record + binary
    )
    statuses = [
        TaskStatus(index=n, state=TaskState.FAILED, attempt=1, host=text[:300], reason=text[:2000])
        for n in range(tasks)
    ]
    cluster = SimpleNamespace(name=text[:300], ui="", store=store.url)
    client = SimpleNamespace(jobs=Jobs(statuses, text), record=cluster)
    return cast(AsyncIrisClient, client)


class Elements(HTMLParser):
    """Collects the elements of a page and their attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += attrs


PAGES = (
    "/jobs",
    f"/jobs?text={quote(EVIL)}&user={quote(EVIL)}&below=a",
    f"/jobs/{quote(JOB)}",
    f"/jobs/{quote(JOB)}?task=0&run=1",
    f"/logs/{quote(JOB)}",
    f"/logs/{quote(JOB)}?find={quote(EVIL)}",
    f"/logs/{quote(JOB)}?before=1800000000000~0",
    f"/logs/{quote(JOB)}?before={quote(EVIL)}",
    f"/jobs?state={quote(EVIL)}",
)


@pytest.mark.parametrize("page", PAGES)
async def test_no_text_of_a_job_becomes_an_element_or_an_attribute(
    tmp_path: Path, page: str
) -> None:
    """The words of a job must not act for the people who look at it."""
    answer = await get((await dashboard(tmp_path, EVIL)).app, page)

    elements = Elements()
    elements.feed(answer.text)
    assert answer.status in (200, 400)
    assert elements.names.count("script") == 3
    assert not [name for name, _ in elements.attributes if name.startswith("on") or name == "style"]
    assert not [
        value
        for name, value in elements.attributes
        if name in ("href", "action", "src") and not re.match(r"[/?#]", value or "")
    ]
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", answer.text)
    assert "{{ 7" in answer.text or "script" not in answer.text.lower().replace("<script", "")
    assert "secret value" not in answer.text


@pytest.mark.parametrize("page", ["/jobs", f"/jobs/{quote(JOB)}", f"/logs/{quote(JOB)}"])
async def test_texts_of_a_megabyte_do_not_make_a_page_of_a_megabyte(
    tmp_path: Path, page: str
) -> None:
    """A reason is bounded, a command and a line of output are not."""
    answer = await get((await dashboard(tmp_path, LONG)).app, page)

    assert answer.status == 200
    assert len(answer.body) < 150_000


async def test_a_page_of_4096_tasks_is_small_when_it_is_sent(tmp_path: Path) -> None:
    """It is opened over tunnels."""
    app = (await dashboard(tmp_path, "a reason", 4_096)).app
    page = f"/jobs/{quote(JOB)}"

    plain = (await get(app, page)).text
    assert plain.count('class="bad"') == 4_096
    assert plain.count('tabindex="-1"') == 4_096
    assert len((await get(app, page, accept_encoding="gzip")).body) < 150_000


async def test_a_stream_escapes_lines_and_ends_with_the_job(tmp_path: Path) -> None:
    """The script puts its data into the page as HTML."""
    app = (await dashboard(tmp_path, EVIL)).app
    text = (await get(app, f"/log-stream/{quote(JOB)}")).text

    assert "event: start\n" in text
    assert "id: 0.1.1\n" in text
    assert text.endswith("event: end\ndata: the job has ended\n\n")
    assert "event: lines\n" not in text  # nothing is new: the page keeps what it shows
    assert "<script" not in text
    assert "\u202e" not in text


async def test_a_download_has_the_bytes_of_the_program(tmp_path: Path) -> None:
    """It is a file, which no browser renders."""
    answer = await get((await dashboard(tmp_path, LONG)).app, f"/log-text/{quote(JOB)}")

    assert answer.body == LONG.encode() + b"\n" + bytes(range(11, 256)) + b"\n"
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["content-disposition"] == ('attachment; filename="ada-tr-ain--i-.log"')
    assert answer.headers["x-content-type-options"] == "nosniff"
