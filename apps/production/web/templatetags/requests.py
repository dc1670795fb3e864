"""Requests on pages: ranks, quantities, and details of events."""

import re
from datetime import date, datetime
from typing import Any

from django import template
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.core.domain import quantities
from apps.core.domain.quantities import count_noun
from apps.core.models import Event
from apps.production.domain.checks.report import count_submitted_messages
from apps.production.domain.checks.rules import declared
from apps.production.domain.content.scan import read_scan
from apps.production.domain.priority import ranks
from apps.production.enums import STATE_SIGNS, RequestState
from apps.production.models import Request

register = template.Library()

#: How wide fields of the request form are. Others take half of the width.
_WIDTHS = {
    "title": "whole",
    "purpose": "whole",
    "experiment": "quarter",
    "campaign": "quarter",
    "deadline": "quarter",
    "requested_priority": "quarter",
}

_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
#: Maximum number of changed fields in a line of the timeline.
SHOWN_CHANGES = 6


@register.simple_tag
def request_state(request: Request) -> SafeString:
    """Render the state with its sign."""
    sign = STATE_SIGNS[RequestState(request.state)]
    return format_html('<span class="state {}">{}</span>', sign, request.get_state_display())


@register.filter
def lower_first(text: str) -> str:
    """Write the first letter small, and leave names inside the text as they are."""
    return text[:1].lower() + text[1:]


@register.filter
def ordinal(rank: int | None) -> str:
    """Return `1` as `1st`, `12` as `12th`."""
    return "–" if rank is None else ranks.format_ordinal(rank)


@register.filter
def age(at: datetime | None) -> str:
    """Format the time since a moment in one unit: `40 min`, `31 h`, `3 d`."""
    if at is None:
        return "–"
    minutes = int((timezone.now() - at).total_seconds()) // 60
    if minutes < 60:
        return f"{max(0, minutes)} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h"
    return f"{minutes // (24 * 60)} d"


@register.filter
def points_in(scan: str) -> int:
    """Return the number of points of a parameter scan; 0 without a scan or if it has faults."""
    return len(read_scan(scan).points)


@register.filter
def brief_count(count: int | None) -> str:
    """Return `20,000,000` as `20 M` if that is exact."""
    if count is None:
        return "–"
    for unit, factor in (("G", 10**9), ("M", 10**6)):
        if count >= factor and count % (factor // 10) == 0:
            return f"{count / factor:g} {unit}"
    return quantities.format_count(count)


@register.filter
def count_in(content: Any, name: str) -> str:
    """Return a count among the arguments of a request or stage."""
    count = declared.number(content, name)
    return "–" if count is None else quantities.format_count(int(count))


@register.filter
def details(event: Event) -> str:
    """Return details of an event of a request: groups, warnings, ranks."""
    match event.kind:
        case "request.pass":
            return _warnings(event)
        case "request.moved":
            return (" back to its score" if event.data.get("by_score") else " manually") + _ranks(
                event
            )
        case "request.priority_set":
            return f" {f'{event.old} → ' if event.old else ''}{event.new}{_ranks(event)}"
        case "request.stage_accepted" | "request.stage_not_accepted":
            missing = event.data.get("missing", 0)
            return f", {count_noun(missing, 'job')} missing"
        case _:
            return _split_details(event) or _signature_details(event)


@register.filter
def moved(event: Event) -> str:
    """Return the old and new rank of an event; empty if it moved nothing."""
    return _ranks(event).removeprefix(", ")


#: Phrases for requests that were split or combined, by the key in the event's data.
_REARRANGED = {
    "split_from": ", split from {}",
    "recovers": ", for missing files of {}",
    "combined_from": ", combined from {}",
    "split_into": ", split into {}",
    "combined_into": ", combined into {}",
}


def _split_details(event: Event) -> str:
    for name, phrase in _REARRANGED.items():
        if keys := event.data.get(name):
            note = f", {event.data['note']}" if event.data.get("note") else ""
            return phrase.format(", ".join(keys) if isinstance(keys, list) else keys) + note
    return ""


def _signature_details(event: Event) -> str:
    """Return the groups signed for, and the absent users on whose behalf."""
    groups = event.data.get("groups", [])
    absent = event.data.get("for", [])
    text = f" for {', '.join(groups)}" if groups else ""
    if absent:
        text += f", on behalf of {' and '.join(absent)}"
    return text


def _warnings(event: Event) -> str:
    if "checks_count" not in event.data:
        return ""
    count = count_submitted_messages(event.data)
    if not count:
        return ", without warnings"
    return f", with {count_noun(count, 'warning')}"


def _ranks(event: Event) -> str:
    old = event.data.get("rank_old")
    new = event.data.get("rank_new")
    if old is None and new is None:
        return ""
    if old is None or new is None:
        if old is None:
            return f", {ordinal(new)} in the queue"
        return f", out of the queue ({ordinal(old)})"
    if old != new:
        return f", {ordinal(old)} → {ordinal(new)} in the queue"
    return f", still {ordinal(new)} in the queue"


@register.filter
def changed_fields(event: Event) -> list[dict[str, str]]:
    """Return the first changes of an event, each with the label of its field, and plain dates.

    Empty for events of submissions, whose changes are changes of resources.
    """
    changes = event.data.get("changes")
    if not isinstance(changes, list):
        return []
    shown = []
    for change in changes[:SHOWN_CHANGES]:
        shown.append(
            {
                **change,
                "place": place(change["path"]),
                "old": _with_plain_day(change["old"]),
                "new": _with_plain_day(change["new"]),
            }
        )
    return shown


def _with_plain_day(text: str) -> str:
    """Return `2026-12-05` as `5 Dec 2026`, and any other text as it is."""
    if not _DAY.fullmatch(text):
        return text
    try:
        return f"{date.fromisoformat(text):%-d %b %Y}"
    except ValueError:
        return text


@register.filter
def more_changes(event: Event) -> int:
    """Return the number of changes that `changed_fields` omits."""
    count: int = event.data.get("count", 0)
    return max(0, count - SHOWN_CHANGES)


@register.filter
def place(path: str) -> str:
    """Return `stages.0.memory_bytes` as `stage 1 › memory`."""
    parts = path.split(".")
    name = parts[-1].removesuffix("_bytes").removesuffix("_seconds").replace("_", " ")
    if parts[0] != "stages" or len(parts) == 1:
        return name
    stage = f"stage {int(parts[1]) + 1}"
    return f"{stage} › {name}" if len(parts) > 2 else stage


@register.filter
def places(paths: list[str]) -> str:
    """Return paths as labels, with equal fields grouped as `stages 1–3, 5 › services`."""
    stages: dict[str, list[int]] = {}
    for path in paths:
        before, number, field = [*path.split(".", 2), "", ""][:3]
        stages.setdefault(field if before == "stages" and number else path, []).append(
            int(number) if before == "stages" and number else -1
        )
    return " · ".join(
        _stages(numbers, field) for field, numbers in stages.items() if field or numbers != [-1]
    )


def _stages(numbers: list[int], field: str) -> str:
    """Return `[0, 1, 2, 4]` and `services` as `stages 1–3, 5 › services`."""
    if numbers[0] < 0:
        return place(field)
    numbers = sorted(set(numbers))
    if len(numbers) == 1:
        return place(f"stages.{numbers[0]}.{field}".removesuffix("."))
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])

    ranges = [f"{run[0] + 1}–{run[-1] + 1}" if len(run) > 1 else str(run[0] + 1) for run in runs]
    text = f"stages {', '.join(ranges)}"
    return f"{text} › {place(field)}" if field else text


@register.filter
def width(field_name: str) -> str:
    """Return the CSS class for the width of a field of the request form."""
    return _WIDTHS.get(field_name, "double")
