"""When a decision was made: the page's own form of a date, or what a spreadsheet made of it."""

import re
from datetime import UTC, datetime

REMEDY = "Keep the form that the page writes, such as 2026-11-15T10:00:00.000Z."
_DATE = re.compile(
    r"(\d{1,4})([./])(\d{1,2})\2(\d{1,4})"
    r"(?:,?\s+(\d{1,2}):(\d\d)(?::(\d\d)(?:[.,]\d+)?)?(?:\s*([AP]M))?)?",
    re.IGNORECASE | re.ASCII,
)


def instant(text: str) -> datetime:
    """The moment that a cell names; without a time zone it is in UTC, as the page writes it.

    ISO 8601 is read, and dates with points (day first), with the year first, or with slashes where
    only one number can be the month. A ValueError says why a cell is no date.

    >>> instant("2026-11-15T10:00:00.000Z") == instant("15.11.2026 10:00")
    True
    >>> instant("11/16/2026 1:30 PM").isoformat()
    '2026-11-16T13:30:00+00:00'
    >>> instant("9/1/2026")
    Traceback (most recent call last):
    ValueError: may be the 1st of month 9, or the 9th of month 1
    """
    text = text.strip()
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = _from_spreadsheet(text)
    try:
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("is no date") from None


def _from_spreadsheet(text: str) -> datetime:
    parts = _DATE.fullmatch(text)
    if parts is None:
        raise ValueError("is no date")
    one, mark, two, three, hour, minute, second, half = parts.groups()
    year, month, day = _ordered(one, mark, two, three)
    hours = int(hour or 0)
    if half:
        if not 1 <= hours <= 12:
            raise ValueError("is no date")
        hours = hours % 12 + 12 * (half.upper() == "PM")
    try:
        return datetime(year, month, day, hours, int(minute or 0), int(second or 0), tzinfo=UTC)
    except ValueError:
        raise ValueError("is no date") from None


def _ordered(one: str, mark: str, two: str, three: str) -> tuple[int, int, int]:
    """Year, month and day; years have four digits."""
    first, middle, last = int(one), int(two), int(three)
    if len(one) == 4:
        return first, middle, last
    if len(three) != 4:
        raise ValueError("does not write the year in four digits")
    if mark == "." or first > 12:
        return last, middle, first
    if middle > 12 or first == middle:
        return last, first, middle
    raise ValueError(
        f"may be the {_ranked(middle)} of month {first}, or the {_ranked(first)} of month {middle}"
    )


def _ranked(day: int) -> str:
    return f"{day}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(day, 'th') }"
