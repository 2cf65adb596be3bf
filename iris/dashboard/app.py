"""The web application: the pages, their live updates, and the files they need."""

import mimetypes
from collections.abc import Hashable, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from iris.dashboard.actions.browser import forget_said, said
from iris.dashboard.actions.forms import Forms
from iris.dashboard.content import NO_ANSWER, Address, Content, Page, problem_of
from iris.dashboard.guard import Guard
from iris.dashboard.live import EVENT_STREAM, Live, NotUpToDate
from iris.dashboard.log_routes import LogRoutes
from iris.dashboard.pages import (
    fleet,
    host,
    job,
    jobs,
    logs,
    more,
    overview,
    queue,
    simulations,
    usage,
)
from iris.dashboard.reader import Reader
from iris.dashboard.rendering import STATIC, make_environment, static
from iris.model.errors import IrisError

#: All pages of the dashboard, in the order of the navigation.
PAGES: tuple[Page, ...] = (
    Page("/", "overview.html", overview.load, "/"),
    Page("/jobs", "jobs.html", jobs.load, "/jobs"),
    Page("/jobs/{job:path}", "job.html", job.load, "/jobs"),
    Page("/logs/{job:path}", "logs.html", logs.load, "/jobs"),
    Page("/queue", "queue.html", queue.load, "/queue"),
    Page("/fleet", "fleet.html", fleet.load, "/fleet"),
    Page("/slices/{slice}", "slice.html", fleet.load_slice, "/fleet"),
    Page("/hosts/{host}", "host.html", host.load, "/fleet"),
    Page("/autoscaler", "autoscaler.html", fleet.load_autoscaler, "/autoscaler"),
    Page("/usage", "usage.html", usage.load, "/usage"),
    Page("/simulations", "simulations.html", simulations.load_list, "/simulations"),
    Page("/simulations/{simulation}", "simulation.html", simulations.load, "/simulations"),
    Page("/more", "more.html", more.load, "/more"),
)
#: The entries of the navigation: the path of the page, and the text.
SECTIONS: tuple[tuple[str, str], ...] = (
    ("/", "Overview"),
    ("/jobs", "Jobs"),
    ("/queue", "Queue"),
    ("/fleet", "Fleet"),
    ("/autoscaler", "Autoscaler"),
    ("/usage", "Usage"),
    ("/simulations", "Simulations"),
    ("/more", "More"),
)
#: The `Cache-Control` header of static files. Their content never changes at one address, because
#: the address contains a hash of the content.
FOR_EVER = "public, max-age=31536000, immutable"


class Dashboard:
    """The web application of the dashboard.

    Args:
        names: the host names that browsers may use, in addition to localhost and IP addresses.
        allow_actions: whether users can change the cluster from the pages.
    """

    def __init__(
        self, reader: Reader, names: Sequence[str] = (), *, allow_actions: bool = False
    ) -> None:
        self._reader = reader
        self._templates = make_environment(allow_actions=allow_actions)
        self._files = {each.relative_to(STATIC).as_posix() for each in STATIC.rglob("*.*")}
        self._live = Live(self._render, self._state)
        self._forms = Forms(reader, self._show, self._live, allowed=allow_actions)
        pages = Starlette(
            routes=[
                Route("/static/{digest}/{name:path}", self._static),
                *LogRoutes(reader, self._live.closed).routes,
                Route("/actions/{action}", self._act, methods=["GET", "POST"]),
                *(Route(page.path, self._answer(page)) for page in PAGES),
            ],
            middleware=[Middleware(GZipMiddleware, minimum_size=1_000, compresslevel=1)],
            exception_handlers={HTTPException: self._http_error, Exception: self._failed},
        )
        # Around all of it: Starlette answers an unexpected error outside of its middleware.
        self.app = Guard(pages, names)

    def close(self) -> None:
        """Ends the live updates, so that open pages do not delay the end of the process."""
        self._live.close()

    def _answer(self, page: Page) -> Any:
        async def answer(request: Request) -> Response:
            if EVENT_STREAM in request.headers.get("accept", ""):
                return self._live.stream(page, request)
            content, template = await self._content(page, address_of(request))
            return self._show(request, content, template, page)

        return answer

    async def _act(self, request: Request) -> Response:
        try:
            return await self._forms.answer(request)
        except IrisError as error:
            return self._show(request, problem_of(error), "problem.html")

    async def _content(self, page: Page, address: Address) -> tuple[Content, str]:
        """Returns what the page shows and its template. An error is a page, too."""
        try:
            return await page.load(self._reader, address), page.template
        except IrisError as error:
            return problem_of(error), "problem.html"

    async def _state(self, page: Page, address: Address) -> Hashable:
        """Returns a value that differs if what the page shows may have changed."""
        return await self._reader.state(address.path.get("job", ""))

    async def _render(self, page: Page, address: Address) -> str:
        """Returns the part of the page that changes.

        Raises:
            NotUpToDate: the cluster does not answer at the moment.
        """
        content, template = await self._content(page, address)
        if content.status >= NO_ANSWER:
            raise NotUpToDate(content.values["problem"])
        return self._html("live.html", content, template, address)

    def _show(
        self, request: Request, content: Content, template: str, page: Page | None = None
    ) -> Response:
        """Returns a whole page.

        Args:
            page: the page, if it is live.
        """
        record, started = self._reader.client.record, self._live.started
        message = said(request, started)
        html = self._html(
            "base.html",
            content,
            template,
            address_of(request),
            section=page.section if page is not None else "",
            sections=SECTIONS,
            cluster=record.name,
            ui=record.ui,
            started=started,
            live=page is not None,
            said=message,
        )
        response = HTMLResponse(html, content.status)
        if message:
            forget_said(response, started)
        return response

    def _html(
        self, layout: str, content: Content, template: str, address: Address, **around: Any
    ) -> str:
        values = {**content.values, "title": content.title, "page": address, **around}
        return self._templates.get_template(template).render(values, layout=layout)

    async def _static(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self._files:
            raise HTTPException(404)
        if request.url.path != static(name):
            return RedirectResponse(static(name), 307)
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        content = (STATIC / name).read_bytes()
        return Response(content, media_type=kind, headers={"Cache-Control": FOR_EVER})

    async def _http_error(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        status = error.status_code
        problem = (
            f"there is no page {request.url.path}" if status == 404 else f"{error.detail}".lower()
        )
        content = Content(
            "Not found" if status == 404 else "Refused", {"problem": problem}, status=status
        )
        response = self._show(request, content, "problem.html")
        response.headers.update(error.headers or {})
        return response

    async def _failed(self, request: Request, error: Exception) -> Response:
        problem = "the dashboard has an error; the log of the control plane has the details"
        content = Content("Error", {"problem": problem}, status=500)
        return self._show(request, content, "problem.html")


def address_of(request: Request) -> Address:
    return Address(request.path_params, dict(request.query_params))
