"""Marks of a service's last days or hours, built in Python because a template loop is too slow
for a whole board.
"""

from datetime import date
from functools import lru_cache

from django import template
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

from apps.core.charts import Part, week_strip
from apps.core.web.templatetags.look import sign
from apps.statusboard.domain.availability import Slot
from apps.statusboard.domain.board import Row
from apps.statusboard.enums import worst
from apps.statusboard.models import Incident, Service

register = template.Library()


@register.simple_tag
def day_marks(row: Row) -> SafeString:
    """Render one mark per day or hour, linked to its incident, or to those of its day."""
    page = escape(row.service.get_absolute_url())
    marks = ""
    for slot in row.slots:
        marks += (
            f'<a class="{sign(slot.state)}" href="{_address(page, slot)}" '
            f'title="{_title(slot.summary)}" tabindex="-1"></a>'
        )
    # Signs and dates are the portal's own; the rest is escaped.
    return mark_safe(marks)  # noqa: S308


@register.simple_tag
def plain_marks(row: Row) -> SafeString:
    """Render the same marks without links, for readers who cannot follow them."""
    marks = (
        f'<i class="{sign(slot.state)}" title="{_title(slot.summary)}"></i>' for slot in row.slots
    )
    return mark_safe("".join(marks))  # noqa: S308 – signs are the portal's own, the rest is escaped


@register.simple_tag
def week_marks(service: Service, slots: list[Slot]) -> SafeString:
    """Render a row of hours for each day, linked as `day_marks` does.

    Of an hour that comes twice, as clocks are set back, the worse one is shown; one that is left
    out stays empty.
    """
    page = service.get_absolute_url()
    days: dict[date, dict[int, Slot]] = {}
    for slot in slots:
        hours = days.setdefault(slot.date, {})
        same = hours.get(slot.started_at.hour)
        if same is None or worst([same.state, slot.state]) != same.state:
            hours[slot.started_at.hour] = slot
    rows = []
    for day, hours in days.items():
        parts = {}
        for hour, slot in hours.items():
            parts[hour] = Part(sign(slot.state), 1, slot.summary, _address(page, slot))
        rows.append(("today" if day == max(days) else f"{day:%a}", parts))
    return week_strip(rows, sentence=f"States of {service} by hour, a row for each day")


def _address(page: str, slot: Slot) -> str:
    if slot.incident is not None:
        return str(Incident(pk=slot.incident).get_absolute_url())
    return f"{page}?day={slot.date.isoformat()}"


_title = lru_cache(maxsize=4_000)(escape)
