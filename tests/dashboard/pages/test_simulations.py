"""The pages about published simulations."""

import re
from pathlib import Path
from urllib.request import urlopen

import pytest

from iris.dashboard.rendering import STATIC
from iris.model import store_paths
from iris.simulation.report.document import Report
from iris.simulation.report.pictures.drawing import CLASSES
from iris.storage.object_store import Store
from tests.dashboard.busy import (
    CONFIGURATIONS,
    Busy,
    folder_of_simulation,
    publish_a_simulation,
)
from tests.dashboard.made_cluster import MadeReader, get
from tests.dashboard.test_hostile_texts import EVIL, Elements
from tests.simulation.report.test_stored import report


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store((tmp_path / "store").as_uri(), create=True)


async def published(store: Store, **reports: Report) -> MadeReader:
    """A reader of a cluster with these reports."""
    reader = MadeReader(store=store.url)
    for name, each in reports.items():
        await reader.client.simulations.publish(name, each)
    return reader


async def test_the_list_says_who_what_and_the_numbers_that_say_most(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has a link to its page. One that cannot be read is named, too."""
    monkeypatch.setenv("IRIS_USER", "ada")
    reader = await published(store, more=report("old.yaml", "new.yaml"))
    await store.put(store_paths.simulation_report("lab", "later"), b'{"version":2}\n{}\n')
    text = (await get(reader, "/simulations")).text

    row = text[text.index('id="simulation-more"') :]
    assert 'href="/simulations/more"' in row
    for each in ("ada", "old.yaml", "new.yaml", "4h → 3h", "USD 17.00", "4 gangs"):
        assert each in row
    assert "Cannot be read" in text[text.index('id="simulation-later"') :]


async def test_a_list_without_reports_says_how_to_publish_one(store: Store) -> None:
    """It is the first thing that a reader of this page asks."""
    text = (await get(await published(store), "/simulations")).text
    assert "--publish" in text[text.index('class="empty"') :]


async def test_without_a_store_the_list_says_so() -> None:
    """The page of a report says so, too."""
    reader = MadeReader(store="")
    answer = await get(reader, "/simulations")
    assert answer.status == 200
    assert "no store" in answer.text
    assert (await get(reader, "/simulations/more")).status == 403


@pytest.mark.parametrize(("name", "status"), [("none", 404), ("a%20b", 400), ("later", 503)])
async def test_a_page_without_a_report_says_why(store: Store, name: str, status: int) -> None:
    """It may have been deleted, or written by another version."""
    reader = await published(store, more=report("new"))
    await store.put(store_paths.simulation_report("lab", "later"), b"{}\n{}\n")
    answer = await get(reader, f"/simulations/{name}")
    assert answer.status == status
    assert "notice bad" in answer.text


async def test_nothing_of_a_report_becomes_an_element_or_an_attribute(store: Store) -> None:
    """Whoever can write to the store must not act for the people who look at it."""
    made = report("old", EVIL)
    drawing = made.pictures[0].drawing
    shapes = tuple(
        each.model_copy(update={"content": EVIL}) if hasattr(each, "content") else each
        for each in drawing.shapes
    )
    picture = made.pictures[0].model_copy(
        update={
            "title": EVIL,
            "drawing": drawing.model_copy(update={"described": EVIL, "shapes": shapes}),
        }
    )
    evil = made.model_copy(
        update={
            "against": EVIL,
            "facts": (EVIL,),
            "tables": (
                made.tables[0]._replace(title=EVIL, head=(EVIL,), rows=((EVIL,),), note=EVIL),
            ),
            "pictures": (picture,),
            "worst": tuple(each.model_copy(update={"id": EVIL}) for each in made.worst),
        }
    )
    reader = await published(store, evil=evil)
    for page in ("/simulations", "/simulations/evil"):
        answer = await get(reader, page)
        elements = Elements()
        elements.feed(answer.text)
        assert answer.status == 200
        assert elements.names.count("script") == 3
        assert not [
            name for name, _ in elements.attributes if name.startswith("on") or name == "style"
        ]
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", answer.text)


def test_each_class_of_a_picture_has_a_style_of_the_dashboard() -> None:
    """A shape without one is black."""
    css = (STATIC / "iris.css").read_text()
    styled = set(re.findall(r"\.simulation svg \.([a-z]+)", css))
    assert styled == CLASSES


@pytest.mark.long
def test_the_page_of_a_real_cluster_has_the_tables_and_pictures_of_the_report(busy: Busy) -> None:
    """`--out` and `--publish` show the same, because the same functions render both."""
    page = (folder_of_simulation(busy.cluster) / "report" / "report.html").read_text()
    address = f"{busy.dashboard}{busy.path('/simulations/{simulation}')}"
    content = page.partition("</h1>\n")[2].partition("\n</main>")[0]
    with urlopen(address) as answer:
        shown = answer.read().decode()

    assert content.count("<svg") == 4
    assert content in shown
    assert "&lt;old&gt;.yaml" in content
    assert next(iter(CONFIGURATIONS)) not in shown
    again = publish_a_simulation(busy.cluster)
    assert f"{address}, in place of an earlier one" in again
