"""The page and the files of a report."""

import csv
import io
import json
import re
from html.parser import HTMLParser

from iris.simulation.report.answers import Answers, answers_of
from iris.simulation.report.document import report_of
from iris.simulation.report.page import report_files
from iris.simulation.report.results import Results, to_json
from iris.simulation.report.tables import Shown
from tests.simulation.report.made_histories import MONEY, a_day

VOID = {"meta", "!doctype"}


class Page(HTMLParser):
    """Reads a page: its elements must be closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.names: set[str] = set()
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.names.add(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        self.names.add(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def files(*names: str) -> dict[str, str]:
    """The files about one configuration, or two."""
    days = [(name, a_day(4 - number)) for number, name in enumerate(names)]
    results = [Results(name, (0,), (answers_of(day, MONEY),)) for name, day in days]
    *before, after = results
    old = before[0] if before else None
    report = report_of(Shown(old, after), ("world: <made>",), days)
    return report_files(report, days, to_json(old, after))


def test_a_report_has_a_page_the_answers_pictures_and_tables_for_spreadsheets() -> None:
    """Each is useful without the others."""
    assert set(files("new")) == {
        *("report.html", "answers.json", "waits.svg", "queue-and-use.svg", "slices.svg"),
        *("gangs.csv", "slices.csv"),
    }
    assert {"slices-before.svg", "slices-after.svg"} < set(files("old", "new"))


def test_the_page_is_well_formed_and_needs_nothing_from_outside() -> None:
    """It is one file, and texts of users are texts."""
    text = files("<old>", "<new>")["report.html"]
    page = Page(text)
    assert page.names.isdisjoint({"script", "link", "img", "iframe", "object", "b>"})
    links = re.findall(r"[a-z]+://[^\"' )]+", text)
    assert set(links) == {"http://www.w3.org/2000/svg"}
    said = "".join(page.texts)
    for each in ("<b>bob</b>", "a slice <boots>", "world: <made>", "Simulation of <new>"):
        assert each in said
    assert "prefers-color-scheme: dark" in text
    assert text.count("--ground:") == 2


def test_the_answers_are_those_of_the_command() -> None:
    """Programs read them again."""
    found = json.loads(files("old", "new")["answers.json"])
    new = found["configurations"][1]["answers"][0]
    assert Answers.model_validate(new) == answers_of(a_day(3), MONEY)
    assert found["changes"]["all"]["waits"]["longest"]["mean"] == -3600


def test_gangs_and_slices_are_rows_of_both_configurations() -> None:
    """One file is filtered in a spreadsheet."""
    found = files("old", "new")
    gangs = list(csv.DictReader(io.StringIO(found["gangs.csv"])))
    assert [row["configuration"] for row in gangs] == ["old"] * 4 + ["new"] * 4
    last = gangs[3]
    assert (last["id"], last["waited_seconds"], last["state"]) == ("g4", "14400.0", "FAILED")
    assert (last["placed_at"], last["losses"]) == ("2026-11-02T08:00:00+00:00", "1")
    assert gangs[2]["placed_at"] == ""
    slices = list(csv.DictReader(io.StringIO(found["slices.csv"])))
    assert [row["id"] for row in slices] == ["s1", "s2", "s3"] * 2
    assert slices[2]["ready_at"] == ""


def test_the_same_input_gives_the_same_bytes() -> None:
    """A difference between two reports is one between two simulations."""
    assert files("old", "new") == files("old", "new")
