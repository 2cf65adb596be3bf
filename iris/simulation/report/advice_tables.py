"""The tables of an advice."""

from collections.abc import Callable, Iterator, Sequence

from iris.simulation.advice import Advice, Effect
from iris.simulation.report.forms import NO_VALUE, Form, difference, hours, money, seconds
from iris.simulation.report.results import Change, Spread
from iris.simulation.report.tables import Table


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
