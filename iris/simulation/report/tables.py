"""The tables about one configuration, or about two beside each other. The command line and the page
show the same ones.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from iris.simulation.advice import Advice, Effect
from iris.simulation.report.answers import LongWait
from iris.simulation.report.forms import (
    NO_VALUE,
    Form,
    count,
    difference,
    hours,
    moment,
    money,
    percent,
    seconds,
)
from iris.simulation.report.results import Change, Path, Results, Spread, changes

#: The mark after a difference that is not larger than its standard deviation over the seeds.
UNCLEAR = "~"
#: The note that explains `UNCLEAR` below a table.
UNCLEAR_NOTE = f"{UNCLEAR} the difference is not larger than its spread over the seeds"
#: The limit on characters of a message in a table. The JSON and the page contain the whole message.
_MESSAGE = 120
#: The heading of the first column of the table of the longest waits. This table is recognized by
#: the heading.
WAITS = "GANG"
_MAKESPAN = ("makespan",)


class Table(NamedTuple):
    """A table of texts."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    #: The number of columns from the left that contain texts; the other columns contain numbers. If
    #: the width does not suffice, columns of numbers are left out, the rightmost first.
    texts: int = 1
    #: A text below the table; empty if there is none.
    note: str = ""


class Headline(NamedTuple):
    """The numbers that the list of simulations shows, as texts. If two configurations are compared
    and a number differs, its text has both values.
    """

    #: The median wait of the gangs.
    median: str
    #: The wait that 90 % of the gangs did not exceed.
    ninety: str
    #: The cost of all slices, with the currency; empty without prices.
    cost: str = ""


class Measure(NamedTuple):
    """A number that tables show: its name, its place in the results, and its format."""

    name: str
    path: Path
    form: Form
    #: If true, a table leaves the number out if all of its values are zero.
    rare: bool = False
    #: The text that is shown if the results do not contain the number.
    absent: str = NO_VALUE


#: The rows of the first table. `{currency}` is replaced by the currency of the costs.
MEASURES = (
    Measure("gangs", ("all", "gangs"), count),
    Measure("wait, median", ("all", "waits", "p50"), seconds),
    Measure("wait, 90 %", ("all", "waits", "p90"), seconds),
    Measure("wait, 99 %", ("all", "waits", "p99"), seconds),
    Measure("wait, mean", ("all", "waits", "mean"), seconds),
    Measure("wait, longest", ("all", "waits", "longest"), seconds),
    Measure("unschedulable", ("all", "unschedulable"), count, rare=True),
    Measure("failed", ("all", "failed"), count, rare=True),
    Measure("not ended", ("all", "unended"), count, rare=True),
    Measure("evictions", ("all", "evictions"), count, rare=True),
    Measure("losses of machines", ("all", "losses"), count, rare=True),
    Measure("all done after", _MAKESPAN, seconds),
    Measure("slices made", ("slices", "made"), count),
    Measure("ready host-hours", ("slices", "ready_host_hours"), hours),
    Measure("held of them", ("slices", "held"), percent),
    Measure("idle host-hours", ("slices", "idle_host_hours"), hours),
    Measure("cost {currency}", ("slices", "cost"), money),
)
#: The columns of the tables of gangs by band, team, user and shape.
_OF_PARTS = (
    Measure("GANGS", ("gangs",), count),
    Measure("P50", ("waits", "p50"), seconds),
    Measure("P90", ("waits", "p90"), seconds),
    Measure("P99", ("waits", "p99"), seconds),
    Measure("COST {currency}", ("cost",), money, rare=True),
    Measure("HOST-HOURS", ("host_hours",), hours),
    Measure("UNSCHEDULABLE", ("unschedulable",), count, rare=True),
    Measure("FAILED", ("failed",), count, rare=True),
    Measure("EVICTIONS", ("evictions",), count, rare=True),
    Measure("LOSSES", ("losses",), count, rare=True),
)
_OF_GROUPS = (
    Measure("SLICES", ("made",), count),
    Measure("READY HOURS", ("ready_host_hours",), hours),
    Measure("HELD", ("held",), percent),
    Measure("IDLE HOURS", ("idle_host_hours",), hours),
    Measure("BOOT HOURS", ("boot_host_hours",), hours),
    Measure("COST {currency}", ("cost",), money, rare=True),
)
_OF_WASTE = (
    Measure("HOST-HOURS", ("host_hours",), hours, absent="0"),
    Measure("COST {currency}", ("cost",), money, rare=True, absent="0"),
)
#: The tables of gangs. Each has a title, the heading of the first column, and the field of
#: `Answers` with the rows.
_PARTS = (
    ("Gangs by band", "BAND", "bands"),
    ("Gangs by team", "TEAM", "teams"),
    ("Gangs by user", "USER", "users"),
    ("Gangs by shape", "SHAPE", "shapes"),
)


class Shown:
    """Makes tables and texts from the results of one configuration or of two.

    Args:
        before: the configuration to compare with; None if there is none.
        by_chance: whether other seeds could give other results.
        limit: the limit on rows of a table of users, teams or shapes.
    """

    def __init__(
        self, before: Results | None, after: Results, *, by_chance: bool = True, limit: int = 8
    ) -> None:
        self._before, self._after, self._limit = before, after, limit
        self._all = (after,) if before is None else (before, after)
        self._by_chance = by_chance
        self._new = after.spreads
        self._old = before.spreads if before is not None else {}
        self._changes = changes(before, after) if before is not None else {}
        self._seeds = len(after.seeds)
        self._currency = after.answers[0].currency

    @property
    def workload(self) -> str:
        """The simulated time, and the number of gangs."""
        first = self._after.answers[0]
        length = seconds((first.ends - first.begins).total_seconds())
        gangs = "1 gang" if first.all.gangs == 1 else f"{first.all.gangs:,} gangs"
        return f"{length} from {moment(first.begins)} UTC, {gangs}"

    @property
    def facts(self) -> tuple[str, ...]:
        """Sentences about what was simulated."""
        seeds = (
            f"{self._seeds} seeds; numbers are means over them"
            if self._seeds > 1
            else f"seed {self._after.seeds[0]}"
            if self._by_chance
            else "nothing is left to chance"
        )
        lines = [f"{self.workload}, {seeds}"]
        if self._before is not None:
            lines.append(f"before: {self._before.name}; after: {self._after.name}")
        for machine, missing in self._after.answers[0].unpriced.items():
            lines.append(f"no price for {machine}: {hours(missing)} host-hours are not in the cost")
        return (*lines, *(text for each in self._all for text in waits_for_ever(each)))

    @property
    def worst(self) -> tuple[LongWait, ...]:
        """The longest waits of the configuration of interest, with its first seed."""
        return self._after.answers[0].worst

    def tables(self) -> tuple[Table, ...]:
        """Returns all tables, without those that are empty."""
        found = [self.summary(), *self._of_parts(), self._of_groups(), self._of_faults()]
        found += [self._of_waste(), self._of_waits()]
        return tuple(each for each in found if each.rows)

    def headline(self) -> Headline:
        """Returns the numbers that say most."""
        by_path = {each.path: each for each in MEASURES}

        def text(*path: str) -> str:
            return self._cell(by_path[path], path)

        return Headline(
            text("all", "waits", "p50"),
            text("all", "waits", "p90"),
            f"{self._currency} {text('slices', 'cost')}" if self._currency else "",
        )

    def summary(self) -> Table:
        """Returns the table of the numbers about everything."""
        done = not any(answers.all.unended for each in self._all for answers in each.answers)
        measures = [
            each
            for each in MEASURES
            if self._is_shown(each, [each.path]) and (done or each.path != _MAKESPAN)
        ]
        names = [each.name.format(currency=self._currency).strip() for each in measures]
        head: tuple[str, ...]
        if self._before is None:
            head = ("VALUE",) if self._seeds == 1 else ("MEAN", "LEAST", "MOST")
            cells = [self._values(each) for each in measures]
        else:
            head = ("BEFORE", "AFTER", "DIFFERENCE")
            head = head if self._seeds == 1 else (*head, "SPREAD", "CLEAR")
            cells = [self._difference(each) for each in measures]
        rows = tuple((name, *row) for name, row in zip(names, cells, strict=True))
        note = ""
        if self._before is not None and self._by_chance:
            note = (
                "one seed cannot tell a difference from luck; simulate more with --seeds 5"
                if self._seeds == 1
                else "clear: the difference is larger than its standard deviation over the seeds"
            )
        return Table("Everything", ("MEASURE", *head), rows, note=note)

    def _values(self, measure: Measure) -> tuple[str, ...]:
        spread = self._new[measure.path]
        if self._seeds == 1:
            return (measure.form(spread.mean),)
        return tuple(map(measure.form, (spread.mean, spread.least, spread.most)))

    def _difference(self, measure: Measure) -> tuple[str, ...]:
        old, new = self._old.get(measure.path), self._new.get(measure.path)
        change = self._changes[measure.path]
        shown = difference(change.mean, measure.form)
        cells = (
            NO_VALUE if old is None else measure.form(old.mean),
            NO_VALUE if new is None else measure.form(new.mean),
            shown,
        )
        if change.clear is None:
            return cells
        spread = difference(change.deviation, measure.form).removeprefix("+")
        clear = NO_VALUE if shown == "0" else "yes" if change.clear else "no"
        return (*cells, f"± {spread}", clear)

    def _of_parts(self) -> Iterator[Table]:
        for title, heading, field in _PARTS:
            keys = self._keys(field)
            if field != "bands" and len(keys) < 2:
                continue
            yield self._by_key(title, heading, field, keys, _OF_PARTS)

    def _of_groups(self) -> Table:
        keys = self._keys("groups")
        return self._by_key("Slices by scale group", "GROUP", "groups", keys, _OF_GROUPS)

    def _of_waste(self) -> Table:
        keys = self._keys("waste")
        title = "Host-hours without result"
        return self._by_key(title, "WASTE", "waste", keys, _OF_WASTE)

    def _of_faults(self) -> Table:
        """Returns the table of the requests that failed and the slices that were lost."""
        paths = [
            path
            for path in dict.fromkeys((*self._old, *self._new))
            if path[0] == "groups" and path[2] in ("refused", "lost")
        ]
        words = {"refused": "request failed", "lost": "slice lost"}
        rows = tuple(
            (
                path[1],
                words[path[2]],
                path[3],
                self._cell(Measure("", path, count, absent="0"), path),
            )
            for path in sorted(paths)
        )
        head = ("GROUP", "WHAT", "WHY", "COUNT")
        return Table("Failed requests and lost slices", head, rows, 3, self._note(rows))

    def _of_waits(self) -> Table:
        """Returns the table of the longest waits of the first seed."""
        rows = tuple(
            (each.id, each.user, each.band.value, each.shape, seconds(each.waited), why(each))
            for each in self.worst
        )
        title = "Longest waits" if self._before is None else f"Longest waits, {self._after.name}"
        head = (WAITS, "USER", "BAND", "SHAPE", "WAITED", "WHY")
        return Table(title, head, rows, texts=len(head))

    def _keys(self, field: str) -> list[str]:
        """Returns the keys of a field of `Answers`, in its order."""
        both = (self._after, self._before) if self._before is not None else (self._after,)
        return list(
            dict.fromkeys(
                key
                for results in both
                for answers in results.answers
                for key in getattr(answers, field)
            )
        )

    def _by_key(
        self, title: str, heading: str, field: str, keys: Sequence[str], columns: Sequence[Measure]
    ) -> Table:
        shown = keys[: self._limit]
        kept = [
            each for each in columns if self._is_shown(each, [(field, k, *each.path) for k in keys])
        ]
        rows = tuple(
            (key or NO_VALUE, *(self._cell(each, (field, key, *each.path)) for each in kept))
            for key in shown
        )
        names = (each.name.format(currency=self._currency).strip() for each in kept)
        more = [f"and {len(keys) - len(shown):,} more in the JSON"] if shown != keys else []
        note = "; ".join(filter(None, [*more, self._note(rows)]))
        return Table(title, (heading, *names), rows, note=note)

    def _is_shown(self, measure: Measure, paths: Sequence[Path]) -> bool:
        known = [
            spreads[path].most
            for spreads in (self._old, self._new)
            for path in paths
            if path in spreads
        ]
        return any(known) if measure.rare else bool(known)

    def _cell(self, measure: Measure, path: Path) -> str:
        """Returns a number, or the number before and after if they differ."""
        new = self._text(self._new, measure, path)
        if self._before is None:
            return new
        old, change = self._text(self._old, measure, path), self._changes.get(path)
        if old == new:
            return new
        return f"{old} → {new}{_mark(change)}"

    @staticmethod
    def _text(spreads: dict[Path, Spread], measure: Measure, path: Path) -> str:
        return measure.form(spreads[path].mean) if path in spreads else measure.absent

    @staticmethod
    def _note(rows: Sequence[Sequence[str]]) -> str:
        marked = any(cell.endswith(UNCLEAR) for row in rows for cell in row)
        return UNCLEAR_NOTE if marked else ""


def _mark(change: Change | None) -> str:
    return f" {UNCLEAR}" if change is not None and change.clear is False else ""


def waits_for_ever(results: Results) -> Iterator[str]:
    """Yields a sentence if gangs never get hosts on this configuration."""
    most = max(answers.all.unended for answers in results.answers)
    if most:
        first = results.answers[0]
        waiting = (each for each in first.worst if each.state is None and each.reasons)
        reason = next((f" ({each.id}: {each.reasons[-1].message})" for each in waiting), "")
        yield (
            f"{results.name}: {most:,} of {first.all.gangs:,} gangs wait for ever, and count with"
            f" their wait until the simulation ended{reason}"
        )


def why(wait: LongWait) -> str:
    """Returns why a gang waited: each reason with how long it held, and the message of the one that
    held longest.
    """
    if not wait.reasons:
        return NO_VALUE
    ends = (*(each.after for each in wait.reasons[1:]), wait.waited)
    lasted = [end - each.after for each, end in zip(wait.reasons, ends, strict=True)]
    codes = ", ".join(
        f"{each.code} {seconds(length)}" for each, length in zip(wait.reasons, lasted, strict=True)
    )
    longest = max(range(len(lasted)), key=lasted.__getitem__)
    message = wait.reasons[longest].message
    cut = message if len(message) <= _MESSAGE else f"{message[: _MESSAGE - 1].rstrip()}…"
    return f"{codes}: {cut}"


def advice_tables(advice: Advice) -> tuple[Table, ...]:
    """Returns a table of the steps that shorten waits, and one of those that save money."""
    unit = advice.currency or "HOST-HOURS"
    form = money if advice.currency else hours
    head = ("GROUP", "CHANGE", "MEAN WAIT", "DIFFERENCE", f"COST {unit}", "DIFFERENCE")

    def table(
        title: str, effects: Sequence[Effect], last: str, worth: Callable[[Effect], str]
    ) -> Table:
        rows = tuple((*_cells(each, form), worth(each)) for each in effects)
        return Table(title, (*head, last), rows, texts=2)

    saved = f"HOURS SAVED PER {advice.currency or 'HOST-HOUR'}"
    return (
        table("Shorter waits", advice.shorter_waits, saved, _saved_hours),
        table("Less money, no longer waits", advice.less_money, "SAVED", _saved_part),
    )


def _cells(each: Effect, form: Form) -> Iterator[str]:
    yield each.group
    yield each.step
    yield _both(each.wait_before, each.wait_after, seconds)
    yield _difference(each.wait, seconds)
    yield _both(each.cost_before, each.cost_after, form)
    yield _difference(each.cost, form)


def _both(before: Spread, after: Spread, form: Form) -> str:
    old, new = form(before.mean), form(after.mean)
    return old if old == new else f"{old} → {new}"


def _difference(change: Change, form: Form) -> str:
    text = difference(change.mean, form)
    if change.clear is None:
        return text
    return f"{text} ± {difference(change.deviation, form).removeprefix('+')}"


def _saved_hours(each: Effect) -> str:
    """Returns the hours of waiting that one unit of money saves."""
    saved = each.saved_hours_per_cost
    return "free" if saved is None else f"{saved:,.2g}" if saved < 100 else f"{saved:,.0f}"


def _saved_part(each: Effect) -> str:
    whole = each.cost_before.mean
    return f"{-each.cost.mean / whole:.0%}" if whole else NO_VALUE
