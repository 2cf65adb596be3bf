"""Defines the rows of the results, and prints them as a table."""

from dataclasses import dataclass

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Row:
    """One measurement: the number of Iris, the number of the floor, and the target for their ratio
    (or for the number of Iris).

    Args:
        target: None if there is no target.
        at_least: the target is a lower bound; else it is an upper bound.
        ratio: the ratio, if it is not simply that of the two numbers.
        format: the format of the numbers.
        note: details on the numbers.
    """

    what: str
    iris: float
    floor: float | None = None
    target: float | None = None
    at_least: bool = False
    ratio: float | None = None
    format: str = "{:.1f}"
    note: str = ""

    @property
    def judged(self) -> float:
        """The number that is compared with the target: the ratio if there is a floor, else the
        number of Iris.
        """
        if self.floor is None:
            return self.iris
        return self.iris / self.floor if self.ratio is None else self.ratio

    @property
    def met(self) -> bool | None:
        if self.target is None:
            return None
        return self.judged >= self.target if self.at_least else self.judged <= self.target

    def cells(self) -> tuple[str, ...]:
        ratio = "" if self.floor is None else f"{self.judged:.2f}"
        floor = "" if self.floor is None else self.format.format(self.floor)
        bound = "≥" if self.at_least else "≤"
        written = (
            f"{self.target:.2f}"
            if self.floor is not None and self.target is not None
            else self._written()
        )
        verdict = {None: "", True: "met", False: "MISSED"}[self.met]
        return (
            self.what,
            self.format.format(self.iris),
            floor,
            ratio,
            f"{bound} {written}" if written else "",
            verdict,
            self.note,
        )

    def _written(self) -> str:
        return "" if self.target is None else self.format.format(self.target)


def show(rows: list[Row]) -> None:
    """Prints the table: as wide as the terminal, or 200 columns where there is none."""
    table = Table()
    for heading in ("measured", "Iris", "floor", "ratio", "target", "verdict", "note"):
        numeric = heading in ("Iris", "floor", "ratio", "target")
        table.add_column(heading, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*row.cells())
    console = Console()
    Console(width=None if console.is_terminal else 200).print(table)
