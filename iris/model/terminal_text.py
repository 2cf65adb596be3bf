"""What of a text a terminal may get. Pure.

Output, reasons, names and paths come from programs and from other users. On a terminal, escape
sequences would move the cursor over what Iris has printed, erase it, set the clipboard or the
title, or type an answer on standard input. Colours (SGR), tabs, line breaks and the carriage return
of a progress bar do nothing of the kind.
"""

import re

#: Stands for each control character, and for each control sequence, that a terminal must not get.
REPLACEMENT = "�"
#: The beginning of a control sequence (ECMA-48, 5.4), without its last letter.
_SEQUENCE = r"\[[0-?]{0,64}[ -/]{0,8}"
_UNFIT = re.compile(
    r"\x1b(?!\[[0-9;:]{0,64}m)"  # the character that begins any sequence but that of a colour,
    rf"(?:{_SEQUENCE}[@-~])?"  # and the rest of a control sequence; the text of a title is shown
    r"|[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f]"
)
_BEGUN = re.compile(rf"\x1b(?:{_SEQUENCE})?\Z")
_RESET = ("\x1b[m", "\x1b[0m")


def fit(text: str) -> str:
    """Returns the text with a replacement character for all that a terminal must not get."""
    return _UNFIT.sub(REPLACEMENT, text)


class TerminalText:
    """Fits a text that arrives in pieces, which may cut the sequence of a colour in two."""

    def __init__(self) -> None:
        self._begun = ""
        #: Whether the text has set a colour or a style that is still in force.
        self._styled = False

    def fit(self, piece: str) -> str:
        """Returns what the terminal gets now. A sequence's beginning waits for the next piece."""
        text = self._begun + piece
        begun = _BEGUN.search(text)
        self._begun = begun[0] if begun else ""
        shown = fit(text[: len(text) - len(self._begun)])
        if (last := shown.rfind("\x1b")) >= 0:
            self._styled = not shown.startswith(_RESET, last)
        return shown

    def end(self) -> str:
        """Returns what the terminal gets at the end of the text, whose styles do not stay."""
        shown, self._begun = fit(self._begun), ""
        if self._styled:
            shown += _RESET[1]
        self._styled = False
        return shown
