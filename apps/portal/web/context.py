"""What the frame of every page needs: places, the strip that speaks when something is wrong."""

from typing import Any

from django.http import HttpRequest
from django.utils import timezone
from django.utils.functional import SimpleLazyObject

from apps.accounts.permissions import is_opg
from apps.notifications.domain.notifications import unread_count
from apps.statusboard.domain.board import strip

#: The six places: name, URL name, and the prefixes of the paths that belong to it.
PLACES = [
    ("Operations", "portal:home", ("/services/",)),
    ("Requests", "production:request-list", ("/requests/", "/quality/", "/submissions/")),
    ("Jobs", "jobs:list", ("/jobs/",)),
    ("Failures", "diagnosis:failures", ("/failures/",)),
    ("Archive", "archive:jobs", ("/archive/",)),
    ("Reports", "jobs:reports", ("/reports/",)),
]


def frame(request: HttpRequest) -> dict[str, Any]:
    """Return the places and, read only where a template asks for it, the strip, what is unread, who may see health."""
    user = getattr(request, "user", None)
    if user is None or not user.is_authenticated:
        return {}
    return {
        "places": [
            {"name": name, "url": url, "current": _is_current(request.path, url, prefixes)}
            for name, url, prefixes in PLACES
        ],
        "sees_health": SimpleLazyObject(lambda: is_opg(user)),
        "unread_notifications": SimpleLazyObject(lambda: unread_count(user)),
        "strip": SimpleLazyObject(lambda: strip(timezone.now(), user)),
    }


def _is_current(path: str, url: str, prefixes: tuple[str, ...]) -> bool:
    return path.startswith(prefixes) or (url == "portal:home" and path == "/")
