"""Turns lines of output into HTML. Colours of terminals become classes; every other control
sequence is removed, and nothing in a line is read as HTML.
"""

import re
from collections.abc import Iterable, Iterator

from markupsafe import Markup, escape

from iris.client.logs.entries import LogEntry
from iris.dashboard.rendering import clean
from iris.model.host.faults import is_error_line

#: The limit on characters of a line on a page. The download contains the whole line.
MOST_CHARACTERS = 8_000
#: The limit on changes of colour within a line. The rest of the line has the last colour.
MOST_COLOURS = 200
_COLOUR = re.compile(r"\x1b\[([0-9;:]{0,64})m")
#: Matches control sequences of terminals (ECMA-48) other than colours, and the sequences that set
#: titles and links (OSC).
_SEQUENCE = re.compile(
    r"\x1b(?:\[[0-?]{0,64}[ -/]{0,8}[@-ln-~]|\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)|[@-Z\\^_])"
)
#: The letter that marks the lines of each stream. Lines of standard output have no letter.
_LETTERS = {"stdout": "", "stderr": "E", "build": "B"}
#: The CSS classes of the text styles, by the numbers that select the styles in a terminal.
_STYLES = {1: "b", 3: "i", 4: "u"}


def lines_html(entries: Iterable[LogEntry], *, several: bool) -> Markup:
    """Returns the lines as HTML.

    Args:
        several: whether the lines are of several tasks, so that each has its task's number.
    """
    return Markup("").join(line_html(entry, several=several) for entry in entries)


def line_html(entry: LogEntry, *, several: bool) -> Markup:
    """Returns a line as HTML: its time, its task, its stream, and its text."""
    text = shown_text(entry.text)
    error = entry.stream != "build" and is_error_line(text)
    letter = _LETTERS[entry.stream]
    return Markup(
        '<div class="l {}{}"><span class="t">{}</span>{}<span class="k">{}{}</span>'
        '<span class="x">{}</span></div>'
    ).format(
        entry.stream,
        " err" if error else "",
        entry.time.strftime("%m-%d %H:%M:%S"),
        Markup('<span class="n">{}</span>').format(f"{entry.task}@{entry.attempt}")
        if several
        else "",
        letter,
        "!" if error else "",
        text_html(text),
    )


def shown_text(text: str) -> str:
    """Returns what a terminal would show of a line after its last carriage return."""
    return text.rstrip("\r").rsplit("\r", 1)[-1]


def text_html(text: str) -> Markup:
    """Returns the text of a line as HTML, cut after `MOST_CHARACTERS`."""
    rest = len(text) - MOST_CHARACTERS
    html = Markup("").join(_styled(_SEQUENCE.sub("", text[:MOST_CHARACTERS])))
    if rest > 0:
        html += Markup(' <i class="cut">… {} more characters</i>').format(f"{rest:,}")
    return html


def _styled(text: str) -> Iterator[Markup]:
    colour, styles = "", set[str]()
    *parts, rest = _COLOUR.split(text, MOST_COLOURS)
    for number, part in enumerate([*parts, _COLOUR.sub("", rest)]):
        if number % 2:
            colour, styles = _after(part, colour, styles)
        elif part:
            classes = " ".join(sorted({*styles, *([colour] if colour else [])}))
            plain = escape(clean(part))
            yield Markup('<span class="{}">{}</span>').format(classes, plain) if classes else plain


def _after(sequence: str, colour: str, styles: set[str]) -> tuple[str, set[str]]:
    """Returns the colour and the styles after a sequence of their numbers."""
    styles = set(styles)
    numbers = [int(each) if each.isdecimal() else 0 for each in re.split("[;:]", sequence)]
    while numbers:
        number = numbers.pop(0)
        if number == 0:
            colour, styles = "", set()
        elif number in _STYLES:
            styles.add(_STYLES[number])
        elif 22 <= number <= 24:
            styles.discard({22: "b", 23: "i", 24: "u"}[number])
        elif 30 <= number <= 37 or 90 <= number <= 97:
            colour = f"c{number % 10}"
        elif number == 39:
            colour = ""
        elif number in (38, 48):  # a colour of a larger palette, which is not shown
            del numbers[: 2 if numbers[:1] == [5] else 4]
    return colour, styles
