"""Lines of output as HTML: nothing in them is read as HTML or as a terminal's code."""

import re
import time
from datetime import UTC, datetime

import pytest

from iris.client.logs.entries import LogEntry
from iris.dashboard.log_html import MOST_CHARACTERS, line_html, shown_text, text_html


def entry(text: str, stream: str = "stdout") -> LogEntry:
    return LogEntry(3, 1, datetime(2026, 1, 1, 12, tzinfo=UTC), stream, text)


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("<b>&\"'", "&lt;b&gt;&amp;&#34;&#39;"),
        ("\x1b[31mred\x1b[0m plain", '<span class="c1">red</span> plain'),
        (
            "\x1b[1;91mbold\x1b[22m thin",
            '<span class="b c1">bold</span><span class="c1"> thin</span>',
        ),
        ("\x1b[38;5;196mmany\x1b[38;2;1;2;3m colours", "many colours"),
        ("\x1b[2J\x1b[10;1Hmoved\x1b[K", "moved"),
        ("\x1b]0;a title\x07after", "after"),
        ("\x1b]8;;https://example.com\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("user\u202egnp.exe\u2066", "user\ufffdgnp.exe\ufffd"),
        ("\x00\x01\x7f\x9b31m", "\ufffd\ufffd\ufffd\ufffd31m"),
        ("a\tb", "a\tb"),
        ("\x1b[31", "\ufffd[31"),
    ],
)
def test_a_line_is_shown_as_text(text: str, html: str) -> None:
    """Colours stay as classes; codes that move the cursor, set titles or turn the text do not."""
    assert text_html(text) == html


def test_a_progress_bar_shows_its_last_state() -> None:
    """A terminal would have written over the others."""
    assert shown_text("10%\r50%\r100%\r") == "100%"
    assert shown_text("from Windows\r") == "from Windows"


@pytest.mark.parametrize("piece", ["x", "\x1b[31m", "\x1b]0;", "Error", "<", "\u202e"])
def test_a_line_of_a_megabyte_costs_a_moment_and_some_kilobytes(piece: str) -> None:
    """A page has a thousand lines."""
    start = time.process_time()
    html = line_html(entry(piece * (1_000_000 // len(piece))), several=False)

    assert len(html) < 7 * MOST_CHARACTERS
    assert "more characters" in html
    assert time.process_time() - start < 0.5


def test_errors_and_streams_are_marked_with_letters() -> None:
    """Nothing is said by colour alone."""
    marks = re.compile(r'class="k">(.*?)<')
    lines = [
        entry("all is well"),
        entry("ValueError: bad"),
        entry("Traceback (most recent call last):", "stderr"),
        entry("epoch 1", "stderr"),
        entry("error: is a word of the set-up", "build"),
    ]

    found = [marks.findall(line_html(each, several=True))[0] for each in lines]
    assert found == ["", "!", "E!", "E", "B"]
    assert 'class="n">3@1<' in line_html(lines[0], several=True)
