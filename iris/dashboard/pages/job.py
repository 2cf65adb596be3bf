"""One job: its state with the reason, its tasks and its attempts."""

from iris.dashboard.content import Address, Content
from iris.dashboard.reader import Reader


async def load(reader: Reader, address: Address) -> Content:
    """Loads the page."""
    job = address.path["job"]
    jobs = reader.client.jobs
    status = await reader.shared(("status", job), lambda: jobs.status(job))
    explanation = await reader.shared(("explain", job), lambda: jobs.explain(job))
    return Content(
        job,
        {"status": status, "explanation": explanation, "page_in_ui": jobs.page(job)},
        above="/jobs",
    )
