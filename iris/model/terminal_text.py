"""Removes from a text the control sequences that a terminal must not get.

Output, reasons, names and paths come from programs and from other users. On a terminal, escape
sequences in them could move the cursor over what Iris has printed, erase it, set the clipboard or
the title, or type an answer on standard input. Colours (SGR), tabs, line breaks and the carriage
return of a progress bar are harmless and stay.
"""

import re

#: The character that replaces each control character or control sequence that a terminal must not
#: get.
REPLACEMENT = "�"
#: The beginning of a control sequence (ECMA-48, 5.4), without its last letter.
_SEQUENCE = r"\[[0-?]{0,64}[ -/]{0,8}"
_UNFIT = re.compile(
    r"\x1b(?!\[[0-9;:]{0,64}m)"  # matches an escape character, unless it begins a colour
    rf"(?:{_SEQUENCE}[@-~])?"  # matches the rest of a control sequence; the text of a title stays
    r"|[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f]"
)
_BEGUN = re.compile(rf"\x1b(?:{_SEQUENCE})?\Z")
_RESET = ("\x1b[m", "\x1b[0m")


def fit(text: str) -> str:
    """Returns the text with a replacement character for each forbidden control character or
    sequence.
    """
    return _UNFIT.sub(REPLACEMENT, text)


class TerminalText:
    """Removes the control sequences that a terminal must not get from a text that arrives in
    pieces. A piece may end in the middle of a sequence.
    """

    def __init__(self) -> None:
        self._begun = ""
        #: Whether a colour or a style that the text has set is still active.
        self._styled = False

    def fit(self, piece: str) -> str:
        """Returns the text that the terminal gets now. An incomplete sequence waits for the next
        piece.
        """
        text = self._begun + piece
        begun = _BEGUN.search(text)
        self._begun = begun[0] if begun else ""
        shown = fit(text[: len(text) - len(self._begun)])
        if (last := shown.rfind("\x1b")) >= 0:
            self._styled = not shown.startswith(_RESET, last)
        return shown

    def end(self) -> str:
        """Returns the text that the terminal gets at the end: it resets the active colour and
        style.
        """
        shown, self._begun = fit(self._begun), ""
        if self._styled:
            shown += _RESET[1]
        self._styled = False
        return shown
