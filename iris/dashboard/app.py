"""The web application: the pages, their live updates, and the files they need."""

import mimetypes
from collections.abc import Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from iris.dashboard.content import Address, Content, Page
from iris.dashboard.guard import Guard
from iris.dashboard.live import EVENT_STREAM, Live
from iris.dashboard.log_routes import LogRoutes
from iris.dashboard.pages import (
    autoscaler,
    fleet,
    host,
    job,
    jobs,
    logs,
    more,
    overview,
    queue,
    slice,
    usage,
)
from iris.dashboard.reader import Reader
from iris.dashboard.rendering import STATIC, make_environment, static
from iris.model.errors import InvalidValue, IrisError, NotFound, Rejected

#: The pages, in the order of the navigation.
PAGES: tuple[Page, ...] = (
    Page("/", "overview.html", overview.load, "/"),
    Page("/jobs", "jobs.html", jobs.load, "/jobs"),
    Page("/jobs/{job:path}", "job.html", job.load, "/jobs"),
    Page("/logs/{job:path}", "logs.html", logs.load, "/jobs"),
    Page("/queue", "queue.html", queue.load, "/queue"),
    Page("/fleet", "fleet.html", fleet.load, "/fleet"),
    Page("/slices/{slice}", "slice.html", slice.load, "/fleet"),
    Page("/hosts/{host}", "host.html", host.load, "/fleet"),
    Page("/autoscaler", "autoscaler.html", autoscaler.load, "/autoscaler"),
    Page("/usage", "usage.html", usage.load, "/usage"),
    Page("/more", "more.html", more.load, "/more"),
)
#: The entries of the navigation.
SECTIONS: tuple[tuple[str, str], ...] = (
    ("/", "Overview"),
    ("/jobs", "Jobs"),
    ("/queue", "Queue"),
    ("/fleet", "Fleet"),
    ("/autoscaler", "Autoscaler"),
    ("/usage", "Usage"),
    ("/more", "More"),
)
#: The content of a file of the dashboard never changes: its address contains its hash.
FOR_EVER = "public, max-age=31536000, immutable"


class Dashboard:
    """Answers requests for pages.

    Args:
        names: the host names with which browsers may ask, besides those of this machine.
    """

    def __init__(self, reader: Reader, names: Sequence[str] = ()) -> None:
        self._reader = reader
        self._templates = make_environment()
        self._live = Live(self._render)
        self.app = Starlette(
            routes=[
                Route("/static/{digest}/{name:path}", self._static),
                *LogRoutes(reader, self._live.closed).routes,
                *(Route(page.path, self._answer(page)) for page in PAGES),
            ],
            middleware=[
                Middleware(Guard, names=names),
                Middleware(GZipMiddleware, minimum_size=1_000),
            ],
            exception_handlers={HTTPException: self._http_error},
        )

    def close(self) -> None:
        """Ends the live updates, so that open pages do not delay the end of the process."""
        self._live.close()

    def _answer(self, page: Page) -> Any:
        async def answer(request: Request) -> Response:
            if EVENT_STREAM in request.headers.get("accept", ""):
                return self._live.stream(page, request)
            content, template = await self._content(page, address_of(request))
            html = self._page(page, request, content, template)
            return HTMLResponse(html, content.status)

        return answer

    async def _content(self, page: Page, address: Address) -> tuple[Content, str]:
        """Returns what the page shows and its template. An error is a page, too."""
        try:
            return await page.load(self._reader, address), page.template
        except NotFound as error:
            status = 404
            problem: IrisError = error
        except InvalidValue as error:
            status, problem = 400, error
        except IrisError as error:
            status, problem = 403 if isinstance(error, Rejected) else 503, error
        titles = {404: "Not found", 400: "Wrong address", 403: "Refused", 503: "No answer"}
        return Content(titles[status], {"problem": str(problem)}, status=status), "problem.html"

    async def _render(self, page: Page, address: Address) -> str:
        """Returns the part of the page that changes."""
        content, template = await self._content(page, address)
        return self._html("live.html", content, template, address)

    def _page(self, page: Page, request: Request, content: Content, template: str) -> str:
        record = self._reader.client.record
        return self._html(
            "base.html",
            content,
            template,
            address_of(request),
            section=page.section,
            sections=SECTIONS,
            cluster=record.name,
            ui=record.ui,
            started=self._live.started,
        )

    def _html(
        self, layout: str, content: Content, template: str, address: Address, **around: Any
    ) -> str:
        values = {**content.values, "title": content.title, "page": address, **around}
        return self._templates.get_template(template).render(values, layout=layout)

    async def _static(self, request: Request) -> Response:
        name = request.path_params["name"]
        file = (STATIC / name).resolve()
        if not file.is_relative_to(STATIC) or not file.is_file():
            raise HTTPException(404)
        if request.url.path != static(name):
            return RedirectResponse(static(name), 307)
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        return Response(file.read_bytes(), media_type=kind, headers={"Cache-Control": FOR_EVER})

    async def _http_error(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        content = Content("Not found", {"problem": f"there is no page {request.url.path}"})
        page = Page("", "problem.html", overview.load, "")
        return HTMLResponse(self._page(page, request, content, "problem.html"), error.status_code)


def address_of(request: Request) -> Address:
    return Address(request.path_params, dict(request.query_params))
