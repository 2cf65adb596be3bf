"""The control plane calls the webhooks of a job that has ended, until they accept."""

import http.server
import json
import threading
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

import pytest

from iris.client.jobs.notifications import NotificationRow, NotificationState
from iris.model.states import JobState
from tests.harness import Cluster, Held, fails


class Service:
    """A service with a webhook, which gives these answers, and the last one from then on."""

    def __init__(self, *answers: int) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        service = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                service.calls.append((self.headers["Idempotency-Key"], body))
                self.send_response(answers[min(len(service.calls), len(answers)) - 1])
                self.send_header("Location", "/elsewhere")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook?token=SECRET"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def services() -> Iterator[list[Service]]:
    started: list[Service] = []
    yield started
    for service in started:
        service.server.shutdown()
        service.server.server_close()


async def rows(cluster: Cluster, job: str) -> list[NotificationRow]:
    return list(await cluster.users.job(job).notifications())


async def ended(cluster: Cluster, job: str, state: NotificationState) -> NotificationRow:
    """The row of the job's only webhook, once it is in this state."""

    async def is_so() -> bool:
        return (await rows(cluster, job))[0].state is state

    await cluster.until(is_so)
    return (await rows(cluster, job))[0]


async def test_a_webhook_is_called_until_it_accepts_with_one_key(
    cluster: Cluster, services: list[Service]
) -> None:
    """A service that was away for a moment hears of the end, and can tell that it has heard of it
    before.
    """
    services.append(service := Service(503, 204))
    await cluster.join(program=fails)
    job = await cluster.submit(
        "train", notify=(service.url,), tags={"sweep": "lr"}, note="first try"
    )
    status = await cluster.end(job)
    row = await ended(cluster, job, NotificationState.SENT)

    assert status.state is JobState.FAILED
    (key, _), (same, told) = service.calls
    assert key == same != ""
    assert (told["job"], told["state"], told["tags"], told["note"]) == (
        job,
        "FAILED",
        {"sweep": "lr"},
        "first try",
    )
    assert told["text"].startswith(f"job {job} ended FAILED: ")
    assert told["tasks"] == {"FAILED": 1}
    assert "url" not in told
    assert "SECRET" not in row.url


@pytest.mark.parametrize("answer", [HTTPStatus.NOT_FOUND, HTTPStatus.FOUND], ids=str)
async def test_a_webhook_that_refuses_is_not_called_again_and_changes_nothing(
    cluster: Cluster, services: list[Service], answer: int
) -> None:
    """The job has ended as it has. A redirection is not followed: it may lead to a machine that
    must not be called.
    """
    services.append(service := Service(answer))
    await cluster.join()
    job = await cluster.submit("train", notify=(service.url,))
    status = await cluster.end(job)
    row = await ended(cluster, job, NotificationState.FAILED)

    assert status.state is JobState.SUCCEEDED
    assert str(row) == f"{row.url} (failed: has answered HTTP {int(answer)})"
    assert len(service.calls) == 1


async def test_the_end_of_a_cancelled_job_is_told_too(
    cluster: Cluster, services: list[Service]
) -> None:
    """A service that waits for the message must not wait for ever."""
    services.append(service := Service(200))
    await cluster.join(program=Held())
    job = await cluster.submit("train", notify=(service.url,))
    assert (await rows(cluster, job))[0].state is NotificationState.PENDING
    await cluster.cancel(job)
    await cluster.end(job)
    await ended(cluster, job, NotificationState.SENT)

    assert [told["state"] for _, told in service.calls] == ["KILLED"]


async def test_a_machine_that_gives_out_credentials_is_not_called(cluster: Cluster) -> None:
    """The address may be a name: what counts is the machine that it stands for."""
    await cluster.join()
    job = await cluster.submit("train", notify=("http://169.254.169.254/computeMetadata/v1/",))
    await cluster.end(job)
    row = await ended(cluster, job, NotificationState.FAILED)

    assert "169.254.169.254 is not called: 169.254.169.254 is a link-local address" in row.reason
