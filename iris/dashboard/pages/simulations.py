"""The published reports of simulations, and one of them."""

import asyncio
from typing import NamedTuple

from markupsafe import Markup

from iris.dashboard.content import Address, Content
from iris.dashboard.reader import SHARED_LONGER, Reader, part
from iris.simulation.report.page import content
from iris.simulation.report.stored import Heading
from iris.simulation.report.tables import UNCLEAR_NOTE

#: The limit on reports that the list shows.
MOST_REPORTS = 100


class Shown(NamedTuple):
    """A report of a simulation, rendered for its page."""

    heading: Heading
    html: Markup


async def load_list(reader: Reader, address: Address) -> Content:
    """Loads the list."""
    found = await part(reader.simulations(MOST_REPORTS))
    values = {"simulations": found, "most": MOST_REPORTS, "unclear": UNCLEAR_NOTE}
    return Content("Simulations", values)


async def load(reader: Reader, address: Address) -> Content:
    """Loads the page of one report. The path has `simulation`, its name."""
    name = address.path["simulation"]
    shown = await reader.shared(("simulation", name), lambda: read(reader, name), SHARED_LONGER)
    return Content(name, {"name": name, **shown._asdict()}, above="/simulations")


async def read(reader: Reader, name: str) -> Shown:
    """Reads a report, and renders it. A large one takes a tenth of a second, so a thread does."""
    heading, report = await reader.simulation(name)
    html = await asyncio.to_thread(content, report)
    # `content` escapes each text of the report.
    return Shown(heading, Markup(html))  # noqa: S704
