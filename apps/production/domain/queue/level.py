"""The level that the OPG sets for a request: a class, and a number within it."""

from apps.production.enums import RequestedPriority
from apps.production.models import MAX_PRIORITY, MIN_PRIORITY, Request


def level_of(request: Request) -> str:
    """Return class and number in words, such as `high 7`; empty where neither is set."""
    number = "" if request.priority is None else str(request.priority)
    return " ".join(filter(None, (request.priority_class, number)))


def check_level(priority_class: str | None, number: int | None) -> dict[str, list[str]]:
    """Return what is wrong with a class and a number of which one may be left out, by field."""
    problems = {}
    if number is None and priority_class is None:
        problems["priority"] = ["Give a class, a number, or both."]
    if number is not None and not MIN_PRIORITY <= number <= MAX_PRIORITY:
        problems["priority"] = [f"A whole number from {MIN_PRIORITY} to {MAX_PRIORITY}."]
    if priority_class is not None and priority_class not in RequestedPriority.values:
        problems["priority_class"] = [f"One of {', '.join(RequestedPriority.values)}."]
    return problems
