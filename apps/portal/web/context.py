"""What the frame of every page needs: places, links across apps, the strip that speaks when something is wrong."""

from typing import Any

from django.http import HttpRequest
from django.utils import timezone
from django.utils.functional import SimpleLazyObject

from apps.accounts.models import User
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
#: Pages of higher apps to which a page of a lower app leads: by that page, name and URL name.
PAGE_LINKS = {
    "account": [("Notifications", "notifications:settings"), ("Portal health", "portal:health")],
    "requests": [("Data quality", "quality:waiting")],
}


def frame(request: HttpRequest) -> dict[str, Any]:
    """Return the places and, read only where a template asks for it, the strip, what is unread, and links."""
    user = getattr(request, "user", None)
    if user is None or not user.is_authenticated:
        return {}
    return {
        "places": [
            {"name": name, "url": url, "current": _is_current(request.path, url, prefixes)}
            for name, url, prefixes in PLACES
        ],
        "page_links": SimpleLazyObject(lambda: _page_links(user)),
        "unread_notifications": SimpleLazyObject(lambda: unread_count(user)),
        "strip": SimpleLazyObject(lambda: strip(timezone.now(), user)),
    }


def _page_links(user: User) -> dict[str, list[dict[str, str]]]:
    """Return the links of each page that this person may follow: health is for the OPG."""
    hidden = set() if is_opg(user) else {"portal:health"}
    return {
        page: [{"name": name, "url": url} for name, url in links if url not in hidden]
        for page, links in PAGE_LINKS.items()
    }


def _is_current(path: str, url: str, prefixes: tuple[str, ...]) -> bool:
    return path.startswith(prefixes) or (url == "portal:home" and path == "/")
