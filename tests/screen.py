"""A terminal as the eye sees it: what is on the screen after all that a program has written."""

import re
import unicodedata

_SEQUENCE = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])")
#: The beginning of a sequence whose end has not been read.
_BEGUN = re.compile(r"\x1b(\[[0-9;?]*)?\Z")


class Screen:
    """The lines of a terminal that never scrolls. Knows what `iris` writes: breaks, moves,
    erasures, and the screen beside it.

    Args:
        width: in columns; longer lines continue in the next one.
    """

    def __init__(self, width: int = 80) -> None:
        self._width = width
        self._rows: list[list[str]] = [[]]
        self._row = self._column = 0
        self._beside: tuple[list[list[str]], int, int] | None = None
        self._begun = ""

    @property
    def lines(self) -> list[str]:
        """What is seen, without the empty lines at the end."""
        shown = ["".join(row).rstrip() for row in self._rows]
        while shown and not shown[-1]:
            shown.pop()
        return shown

    @property
    def column(self) -> int:
        return self._column

    def feed(self, text: str) -> None:
        """Shows more text. A read may end in the midst of a sequence, which the next one completes."""
        text, self._begun = self._begun + text, ""
        if begun := _BEGUN.search(text):
            text, self._begun = text[: begun.start()], begun[0]
        at = 0
        while at < len(text):
            if found := _SEQUENCE.match(text, at):
                self._control(found[1], found[2])
                at = found.end()
                continue
            self._character(text[at])
            at += 1

    def _control(self, argument: str, letter: str) -> None:
        if letter == "A":
            self._row = max(0, self._row - int(argument or 1))
        elif letter == "J" and argument in ("", "0"):
            del self._rows[self._row + 1 :]
            del self._rows[self._row][self._column :]
        elif letter == "K" and argument in ("", "0"):
            del self._rows[self._row][self._column :]
        elif letter == "H" and not argument:
            self._row = self._column = 0
        elif (argument, letter) == ("?1049", "h"):
            self._beside = (self._rows, self._row, self._column)
            self._rows, self._row, self._column = [[]], 0, 0
        elif (argument, letter) == ("?1049", "l") and self._beside is not None:
            self._rows, self._row, self._column = self._beside
        elif (
            letter != "m" and argument != "?7"
        ):  # colours, and whether lines continue in the next one
            raise AssertionError(f"a sequence that this terminal does not know: {argument}{letter}")

    def _character(self, character: str) -> None:
        if character == "\r":
            self._column = 0
        elif character == "\n":
            self._down()
        else:
            assert character.isprintable(), f"{character!r} reached the terminal"
            wide = 2 if unicodedata.east_asian_width(character) in "WF" else 1
            if self._column + wide > self._width:
                self._down()
            row = self._rows[self._row]
            row += " " * (self._column - len(row))
            row[self._column : self._column + wide] = [character, *[""] * (wide - 1)]
            self._column += wide

    def _down(self) -> None:
        self._row, self._column = self._row + 1, 0
        while len(self._rows) <= self._row:
            self._rows.append([])
