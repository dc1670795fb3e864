"""Format values on pages: times, durations, sizes, numbers, states."""

import re
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from typing import Any

from django import forms, template
from django.conf import settings
from django.forms import BoundField
from django.utils import timezone
from django.utils.html import conditional_escape, format_html, format_html_join
from django.utils.safestring import SafeString

from apps.core.charts import Part, share_bar
from apps.core.domain.event_kinds import what_was_done
from apps.core.domain.hidden_characters import first_characters, mark_hidden
from apps.core.domain.pagination import with_changes
from apps.core.domain.quantities import JOULES_PER_KWH, round_duration, round_size

register = template.Library()

NONE = "–"
_INSTANT = re.compile(r"\b(20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}Z)")

#: The signs of the look (static/opsportal/css/states.css) and the states that use them. The first
#: five are states of services; the others show the progress of a request or job. Red is reserved
#: for what is stuck, late or rejected.
SIGNS = {
    "up": "up delivered no ok success passed",
    "degraded": "degraded idle needs_change done_partial resource partly warning warned",
    "down": "down rejected deadline yes service code stuck late test_failed",
    "planned": "maintenance planned user",
    "draft": "draft",
    "waiting": "submitted checking awaiting_approval changes_requested",
    "queued": "approved queued",
    "running": "testing running completing data_quality",
    "held": "on_hold held",
    "done": "done completed",
    "failed": "failed timeout out_of_memory node_fail boot_fail",
    "cancelled": "cancelled superseded preempted requeued",
}
_SIGN_OF: dict[str, str] = {}
for _sign, _states in SIGNS.items():
    _SIGN_OF |= dict.fromkeys(_states.split(), _sign)


@register.filter
def visible(text: Any) -> SafeString:
    """Mark hidden characters in the text of a job or a stranger by their code points.

    For the content of an element. In an attribute or title, use `visible_text`.
    """
    return SafeString(
        mark_hidden(
            conditional_escape(text), '<span class="hidden-char" title="{1}">{0}</span>'.format
        )
    )


@register.filter
def visible_text(text: object) -> str:
    """Mark hidden characters in plain text: `⟨U+202E⟩`."""
    return mark_hidden(str(text))


@register.filter
def of(values: Mapping[Any, Any] | None, key: Any) -> Any:
    """Return the value of a mapping for a key; None if there is none."""
    return values.get(key) if values else None


@register.filter
def number(value: float | None) -> str:
    """Format a number: `12345` as `12,345`; None as an en dash."""
    return NONE if value is None else f"{value:,.0f}"


@register.filter
def duration(seconds: float | timedelta | None) -> str:
    """Format seconds: `41 s`, `13 min`, `2 h 57 min`, `3 h`, `19 days`."""
    if seconds is None:
        return NONE
    return round_duration(seconds.total_seconds() if isinstance(seconds, timedelta) else seconds)


@register.filter
def size(count: float | None) -> str:
    """Format bytes in decimal units: `3.1 GB`, `3 GB`."""
    return NONE if count is None else round_size(count)


@register.filter
def growth(count: float | None) -> str:
    """Format a change of bytes: `+3.1 GB`, `−120 MB`, `0 B`."""
    if count is None:
        return NONE
    sign = "+" if count >= 1 else ""
    if count <= -1:
        sign = "−"
    return f"{sign}{round_size(abs(count))}"


@register.filter
def hours(seconds: float | None) -> str:
    """Format seconds as hours with separators: `1,204 h`."""
    if seconds is None:
        return NONE
    if seconds < 36_000:
        return f"{seconds / 3600:,.1f} h"
    return f"{seconds / 3600:,.0f} h"


@register.filter
def energy(joules: float | None) -> str:
    """Format joules as kilowatt-hours: `1.2 kWh`, `0.004 kWh`."""
    if joules is None:
        return NONE
    kilowatt_hours = joules / JOULES_PER_KWH
    if kilowatt_hours < 10:
        return f"{kilowatt_hours:.2g} kWh"
    return f"{kilowatt_hours:,.0f} kWh"


@register.filter
def grams(amount: float | None) -> str:
    """Format grams: `0.4 g`, `120 g`, `3.4 kg`."""
    if amount is None:
        return NONE
    if amount < 10:
        return f"{amount:.2g} g"
    if amount < 1_000:
        return f"{amount:.0f} g"
    return f"{amount / 1_000:,.1f} kg"


@register.filter
def percent(part: float | None, whole: float | None) -> str:
    """Format a share: `5.6 %`; `0 %` and `100 %` only if the share is exact."""
    if part is None or not whole:
        return NONE
    share = 100 * part / whole
    if 0 < share < 0.05:
        return "<0.1 %"
    if 99.95 <= share < 100:
        return ">99.9 %"
    return f"{share:.1f}".removesuffix(".0") + " %"


@register.filter
def core_hours(hours: float | None) -> str:
    """Format core-hours: `1,204`, `7.5`, `0.48`; `0` only if there are none."""
    if hours is None:
        return NONE
    if hours >= 99.5 or not hours:
        return f"{hours:,.0f}"
    if hours >= 0.01:
        return f"{hours:.2g}"
    return "<0.01"


@register.filter
def when(at: datetime | None) -> SafeString | str:
    """Format a time as `Fri 20 Nov 09:12` in the reader's zone, with zone and year on hover."""
    if at is None:
        return NONE
    return _time(at, short_time(_local(at)))


@register.filter
def about(at: datetime | None) -> SafeString | str:
    """Format an expected time as exactly as it is known: within two days to the hour, else the day.

    The whole time is shown on hover.
    """
    if at is None:
        return NONE
    local = _local(at)
    if at - timezone.now() < timedelta(days=2):
        to_the_hour = local.replace(minute=0, second=0, microsecond=0)
        if local.minute >= 30:
            to_the_hour += timedelta(hours=1)
        return _time(at, short_time(to_the_hour))
    return _time(at, f"{local:%a} {day(at)}")


def _local(at: datetime) -> datetime:
    try:
        return timezone.localtime(at)
    except OverflowError:
        # In the first or last representable hours.
        return at


def _time(at: datetime, text: str) -> SafeString:
    title = _local(at).strftime("%Y-%m-%d %H:%M:%S %Z")
    return format_html('<time datetime="{}" title="{}">{}</time>', at.isoformat(), title, text)


def short_time(local: datetime) -> str:
    """Format a time: `09:12` today, `Fri 20 Nov 09:12` this year, else with the year."""
    today = timezone.localtime(timezone.now(), local.tzinfo).date()
    return f"{local:%H:%M}" if local.date() == today else _dated(local)


def _dated(local: datetime) -> str:
    this_year = timezone.localtime(timezone.now(), local.tzinfo).year
    day = f"{local:%a} {local.day} {local:%b}" + (
        "" if local.year == this_year else f" {local.year}"
    )
    return f"{day} {local:%H:%M}"


@register.filter
def day(at: date | None) -> str:
    """Format a day: `20 Nov` this year, else with the year; nothing without a day."""
    if at is None:
        return ""
    local = _local(at) if isinstance(at, datetime) else at
    year = "" if local.year == timezone.localdate().year else f" {local.year}"
    return f"{local.day} {local:%b}{year}"


@register.simple_tag
def period(start: datetime | None, end: datetime | None, last: str = "now") -> SafeString:
    """Format a period: `Fri 20 Nov 09:12 – 12:09`, with the same day only once.

    `last` is shown in place of an end that is not reached.
    """
    if start is None or end is None:
        return format_html("{} – {}", when(start), when(end) if end else last)
    local = _local(end)
    same_day = _local(start).date() == local.date()
    return format_html(
        "{} – {}", when(start), _time(end, f"{local:%H:%M}" if same_day else _dated(local))
    )


@register.filter
def reached(moment: datetime) -> datetime | None:
    """Return a moment that is not in the future; else None, which `period` shows as *now*."""
    return moment if moment <= timezone.now() else None


@register.filter
def instants(text: str) -> SafeString:
    """Format times in a text, such as `2026-11-20T12:03Z`, in the reader's zone.

    The same day is shown only once.
    """
    parts: list[str] = []
    day = None
    for part in _INSTANT.split(text):
        at = _instant(part)
        if at is None:
            parts.append(conditional_escape(part))
            continue
        local = _local(at)
        parts.append(_time(at, f"{local:%H:%M}") if local.date() == day else when(at))
        day = local.date()
    return format_html_join("", "{}", ((part,) for part in parts))


def _instant(text: str) -> datetime | None:
    try:
        if not _INSTANT.fullmatch(text):
            return None
        return datetime.fromisoformat(text)
    except ValueError:
        # An impossible date in a log, such as 31 February.
        return None


@register.filter
def ago(at: datetime | None) -> str:
    """Format the time since a moment: `41 min`."""
    return NONE if at is None else duration(timezone.now() - at)


@register.filter
def sign(state: str) -> str:
    """Return the sign of a state."""
    return _SIGN_OF.get(str(state), "unknown")


@register.simple_tag
def page_zone() -> str:
    """Return the zone of the times on the page, such as `Europe/Berlin, UTC+1`."""
    minutes = int((timezone.localtime().utcoffset() or timedelta()).total_seconds()) // 60
    hours, rest = divmod(abs(minutes), 60)
    offset = "UTC"
    if minutes:
        sign = "-" if minutes < 0 else "+"
        offset += f"{sign}{hours}"
    if rest:
        offset += f":{rest:02d}"
    name = timezone.get_current_timezone_name()
    if name == offset:
        return offset
    return f"{name}, {offset}"


@register.simple_tag
def portal_version() -> str:
    """Return the version of the portal, such as `0.2.0`."""
    return str(settings.PORTAL_VERSION)


@register.simple_tag
def state(value: str, label: str = "") -> SafeString:
    """Render a state as text, sign and colour. `label` replaces the state's own name."""
    return format_html(
        '<span class="state {}">{}</span>', sign(value), label or str(value).replace("_", " ")
    )


@register.simple_tag
def filled_bar(
    *kinds_and_values: Any, whole: float | None = None, labels: str = "", height: int = 8
) -> SafeString:
    """Render a bar of parts, such as `"done" 12 "failed" 3`; the rest of `whole` stays empty.

    `labels` names the parts if their kinds do not: `days gone|days left`.
    """
    kinds = [str(kind) for kind in kinds_and_values[::2]]
    values = [float(value or 0) for value in kinds_and_values[1::2]]
    names = labels.split("|") if labels else kinds
    parts = []
    for kind, value, name in zip(kinds, values, names, strict=True):
        parts.append(Part(kind, value, f"{number(value)} {name}"))
    return share_bar(
        parts, sentence=", ".join(part.title for part in parts), whole=whole, height=height
    )


@register.filter
def breakable(text: str) -> SafeString:
    """Let long names such as `JOB_RECORD_MONTHS` break after their underscores."""
    *beginnings, end = text.split("_")
    return format_html_join("", "{}_<wbr>", ((part,) for part in beginnings)) + conditional_escape(
        end
    )


@register.filter
def folded(text: str, most: int = 160) -> SafeString:
    """Show the first words of a long text; the whole text unfolds."""
    if len(text) <= most:
        return format_html("{}", text)
    return format_html(
        "<details><summary>{}</summary>{}</details>", first_characters(text, most), text
    )


@register.simple_tag
def field_box(field: BoundField, whole: object = "") -> SafeString:
    """Render a form field: label (with the zone of a time), control, help and problems.

    `whole` makes it use the full width.
    """
    zone = ""
    if isinstance(field.field, forms.DateTimeField):
        zone = timezone.get_current_timezone_name()
    return field.render(context={"field": field, "whole": whole, "zone": zone})


@register.simple_tag(takes_context=True)
def query(context: template.Context, **changes: object) -> str:
    """Return the page's query string with some parameters changed, and without `after`."""
    parameters = {name: "" if value is None else str(value) for name, value in changes.items()}
    return with_changes(context["request"].GET, **parameters)


@register.simple_tag(takes_context=True)
def sort_head(context: template.Context, name: str, label: str, kind: str = "") -> SafeString:
    """Render the heading of a column by which `?sort=` orders the list.

    Numbers start with the largest. Selecting it again reverses the order.
    """
    order = _order_by(context, name)
    return format_html(
        '<th class="{}"{}>{}</th>',
        f"{kind} sorted" if order else kind,
        format_html(' aria-sort="{}"', order) if order else "",
        _sort_link(context, name, label, is_number="number" in kind.split()),
    )


@register.simple_tag(takes_context=True)
def sort_link(context: template.Context, name: str, label: str) -> SafeString:
    """Render a link that orders a list without table headings, the largest first."""
    order = _order_by(context, name)
    note = format_html('<span class="visually-hidden">, {}</span>', order) if order else ""
    return format_html("{}{}", _sort_link(context, name, label, is_number=True), note)


def _order_by(context: template.Context, name: str) -> str:
    """Return whether a column orders the list now: `ascending`, `descending` or ""."""
    return {name: "ascending", f"-{name}": "descending"}.get(context["sort"], "")


def _sort_link(context: template.Context, name: str, label: str, *, is_number: bool) -> SafeString:
    now = context["sort"]
    first = name
    if is_number:
        first = f"-{name}"
    reverse = {name: f"-{name}", f"-{name}": name}
    target = first
    if now == first:
        target = reverse[first]
    return format_html(
        '<a href="{}">{}</a><span aria-hidden="true">{}</span>',
        query(context, sort=target, page=None),
        label,
        {name: " ▲", f"-{name}": " ▼"}.get(now, ""),
    )


#: The action of an event's actor, as declared by its kind: `closed the incident`.
register.filter("did", what_was_done)
