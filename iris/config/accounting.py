"""Defines the sections `prices` and `budgets`: what machines cost, and what users may use."""

import re
from datetime import date, datetime
from enum import StrEnum
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from iris.config.values import Flag, Section
from iris.model.errors import InvalidValue

_CURRENCY = re.compile("[A-Z]{3}")
_DATE = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")
#: The limit on amounts of money and on numbers of hours. A larger number is a mistake, and sums of
#: such numbers would not be exact to the cent.
_MOST = 1e12


def _read_currency(text: str) -> str:
    if _CURRENCY.fullmatch(text) is None:
        raise InvalidValue(
            "currency", text, "is not a currency", "write the three letters of ISO 4217, as USD"
        )
    return text


def _read_date(value: object) -> object:
    """Returns a day as text. YAML has dates: a day without quotes is one."""
    if isinstance(value, date) and not isinstance(value, datetime):
        return value.isoformat()
    if not isinstance(value, str) or (value and not _is_date(value)):
        raise InvalidValue("day", value, "is not a day", "write year-month-day, as 2026-12-01")
    return value


def _is_date(text: str) -> bool:
    try:
        return _DATE.fullmatch(text) is not None and bool(date.fromisoformat(text))
    except ValueError:
        return False


def _read_amount(value: Any) -> Any:
    """Returns a number. Refuses a text, which pydantic would convert."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MOST:
        raise InvalidValue("amount", value, "is not an amount", "write a number, such as 1.25")
    return value


#: The currency of all amounts of money, as the three letters of ISO 4217.
Currency = Annotated[str, AfterValidator(_read_currency)]
#: A day by UTC, as `2026-12-01`; empty for no day.
Day = Annotated[
    str, BeforeValidator(_read_date), WithJsonSchema({"type": "string", "format": "date"})
]
#: An amount of money or a number of hours.
Amount = Annotated[
    float, BeforeValidator(_read_amount), WithJsonSchema({"type": "number", "minimum": 0})
]


class RateConfig(Section):
    """The price of one kind of machine. The prices of one entry are added: a machine with GPUs may
    have a price for the machine and a price for each GPU.
    """

    machine: str = Field(
        "",
        description=(
            "A machine type (n2-standard-8), a TPU slice (v5litepod-16) or the beginning of such"
            " names up to a hyphen (v5litepod)."
        ),
    )
    group: str = Field(
        "", description="A scale group, instead of machine: for machines of your own."
    )
    zone: str = Field("", description="A zone or region where this price applies; empty: all.")
    spot: Flag = Field(False, description="Whether it is the price of preemptible slices.")
    since: Day = Field(
        "", description="The first day, by UTC, on which this price applies; empty: always."
    )
    machine_hour: Amount = Field(0, description="Price of one machine for an hour.")
    chip_hour: Amount = Field(0, description="Price of one TPU chip for an hour.")
    gpu_hour: Amount = Field(0, description="Price of one GPU for an hour.")


class Prices(Section):
    """The prices of machines, for `iris usage`."""

    currency: Currency = Field("USD", description="The currency of all prices.")
    rates: tuple[RateConfig, ...] = Field(
        (),
        description="The prices. The one that names the machine and the zone most exactly applies.",
    )


class Period(StrEnum):
    """The period for which a budget applies. Each period begins at midnight, UTC."""

    DAY = "day"
    WEEK = "week"  # from Monday on
    MONTH = "month"


class BudgetAction(StrEnum):
    """The consequence for new jobs when a budget is used up."""

    WARN = "warn"
    HOLD = "hold"


class BudgetConfig(Section):
    """The limit on the use by a user or a team in a period. Exactly one of user and team, and
    exactly one of amount, chip_hours and gpu_hours must be set.
    """

    user: str = Field("", description="The user; `*`: each user, with a budget of its own.")
    team: str = Field("", description="The team, one of teams.")
    amount: Amount = Field(0, description="The most money, in prices.currency.")
    chip_hours: Amount = Field(0, description="The most hours of TPU chips.")
    gpu_hours: Amount = Field(0, description="The most hours of GPUs.")
    per: Period = Field(Period.MONTH, description="The period: day, week or month, by UTC.")
    action: BudgetAction = Field(
        BudgetAction.WARN,
        description=(
            "What happens when it is used up: warn, or hold new jobs until the period is over."
        ),
    )
