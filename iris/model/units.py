"""Parses and formats quantities: memory, CPU, durations.

Inside Iris a quantity is an integer (bytes, millicores) or a `timedelta`. Only this module converts
quantities from and to text.
"""

import re
from datetime import timedelta
from decimal import Decimal

from iris.model.errors import InvalidValue

KIB = 1024
MIB = KIB * 1024
GIB = MIB * 1024
TIB = GIB * 1024

_BYTE_UNITS = {"": 1, "k": KIB, "m": MIB, "g": GIB, "t": TIB}
_SECOND_UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([kmgt])i?b?|b)?", re.IGNORECASE)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhd]|)")

#: The limit on sizes: an exbibyte, more than any machine has. A larger number is a mistake in the
#: unit and is refused.
MAX_BYTES = TIB * 1024 * 1024
#: The limit on cores: a million cores, in thousandths. A larger number is a mistake in the unit and
#: is refused.
MAX_MILLICORES = 1_000_000 * 1000
#: The limit on durations: a hundred years, well below the limit of a Temporal timer.
MAX_DURATION = timedelta(days=36_500)


def parse_bytes(text: str | int, field: str = "memory") -> int:
    """Parses `"8g"`, `"512MiB"`, `"8Gi"`, `"1.5tb"` or a plain number to bytes. Units are powers of
    1024, as in `docker run`.

    Raises:
        InvalidValue: the text is not a size, or is more than any machine has.
    """
    match = _BYTES.fullmatch(str(text).strip())
    if match is None:
        raise InvalidValue(
            field,
            text,
            "is not a size",
            'write a number with a unit, such as "512m", "8g" or "1.5t"',
        )
    size = Decimal(match[1]) * _BYTE_UNITS[(match[2] or "").lower()]
    if size > MAX_BYTES:
        raise InvalidValue(field, text, "is more than any machine has", "check the unit")
    return int(size)


def parse_size(text: str | int, field: str = "memory") -> int:
    """Parses a size that a person wrote, as `parse_bytes` does, but refuses a small number without
    a unit: the person did not mean bytes.

    Raises:
        InvalidValue: the text is not a size, or is less than a mebibyte and has no unit.
    """
    size, raw = parse_bytes(text, field), str(text).strip()
    if 0 < size < MIB and raw.replace(".", "", 1).isdecimal():
        raise InvalidValue(
            field, text, "has no unit, so it means bytes", f'add the unit, such as "{raw}g"'
        )
    return size


def parse_cpu(text: str | float) -> int:
    """Parses `"0.5"`, `2` or `"1500m"` to millicores.

    Raises:
        InvalidValue: the text is not a number of cores, is out of range, or is less than a
            millicore (finer fractions are rounded).
    """
    raw = str(text).strip()
    remedy = 'write a number of cores, such as "4" or "0.5"'
    match = re.fullmatch(r"(\d{1,12})m", raw)
    if match is not None:
        millicores = int(match[1])
    else:
        try:
            cores = float(raw)
        except ValueError:
            raise InvalidValue("cpu", text, "is not a number of cores", remedy) from None
        if not 0 <= cores <= MAX_MILLICORES / 1000:
            raise InvalidValue("cpu", text, "is out of range", remedy)
        millicores = round(cores * 1000)
        if cores > 0 and millicores == 0:
            raise InvalidValue("cpu", text, "is less than a thousandth of a core", remedy)
    if millicores > MAX_MILLICORES:
        raise InvalidValue("cpu", text, "is more than any machine has", remedy)
    return millicores


def parse_duration(text: str | float, field: str = "duration") -> timedelta:
    """Parses `"10s"`, `"1h30m"`, `"2d"`, `"250ms"` or a plain number of seconds.

    Raises:
        InvalidValue: the text is not a duration, or is longer than a hundred years.
    """
    raw = str(text).strip().lower()
    parts = list(_DURATION.finditer(raw))
    if (
        not raw
        or "".join(part[0] for part in parts) != raw
        or (len(parts) > 1 and any(p[2] == "" for p in parts))
    ):
        raise InvalidValue(
            field,
            text,
            "is not a duration",
            'write a number with a unit, such as "30s", "10m", "1h30m" or "2d"',
        )
    seconds = sum(float(part[1]) * _SECOND_UNITS[part[2]] for part in parts if part[0])
    if seconds > MAX_DURATION.total_seconds():
        raise InvalidValue(
            field, text, "is longer than a hundred years", "leave it unset to wait without a limit"
        )
    return timedelta(seconds=seconds)


def format_bytes(size: int) -> str:
    """Formats a size in the largest unit that fits, from bytes to TiB, with at most one decimal: `8
    GiB`, `1.5 TiB`.
    """
    for unit, scale in (("TiB", TIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if size >= scale:
            return f"{size / scale:.1f}".removesuffix(".0") + f" {unit}"
    return f"{size} B"


def format_cpu(millicores: int) -> str:
    """Formats millicores as cores without trailing zeros: `4`, `0.5`."""
    return f"{millicores / 1000:.3f}".rstrip("0").rstrip(".")


def format_duration(duration: timedelta) -> str:
    """Formats a duration in its two largest units: `3d 4h`, `1h 30m`, `40s`, `250ms`."""
    seconds = duration.total_seconds()
    if 0 < seconds < 1:
        return f"{max(1, round(seconds * 1000))}ms"
    left = round(seconds)
    parts = []
    for unit, scale in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, left = divmod(left, scale)
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2]) or "0s"
