"""What the frame of every page needs: places, the strip that speaks when something is wrong."""

from typing import Any

from django.http import HttpRequest

#: The six places: name, URL name, and the prefixes of the paths that belong to it.
PLACES = [
    ("Operations", "portal:home", ("/services/",)),
    ("Jobs", "jobs:list", ("/jobs/",)),
    ("Reports", "jobs:reports", ("/reports/",)),
]


def frame(request: HttpRequest) -> dict[str, Any]:
    if not getattr(request, "user", None) or not request.user.is_authenticated:
        return {}
    return {
        "places": [
            {
                "name": name,
                "url": url,
                "current": any(request.path.startswith(p) for p in prefixes)
                or (url == "portal:home" and request.path == "/"),
            }
            for name, url, prefixes in PLACES
        ],
    }
