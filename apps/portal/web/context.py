"""The context of every page: main sections, links across apps, and the warning strip."""

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.functional import SimpleLazyObject

from apps.accounts.models import Principal
from apps.accounts.permissions import is_opg
from apps.diagnosis.domain.reading.backlog import log_backlog
from apps.notifications.domain.notifications import unread_count
from apps.portal.web.page_links import page_links
from apps.production.permissions import may_create
from apps.statusboard.domain.board.board import read_strip

#: The main sections: name, URL name, and prefixes of the paths that belong to it.
MAIN_SECTIONS = [
    ("Operations", "portal:home", ("/services/", "/excluded-hosts/", "/probes/", "/hand-over/")),
    (
        "Requests",
        "production:request-list",
        (
            "/requests/",
            "/quality/",
            "/submissions/",
            "/datasets/",
            "/reports/requests/",
            "/reports/frozen/",
        ),
    ),
    ("Jobs", "jobs:list", ("/jobs/", "/hosts/", "/sites/", "/users/")),
    ("Failures", "diagnosis:failures", ("/failures/", "/retries/", "/recovery/")),
    ("Archive", "archive:jobs", ("/archive/",)),
    ("Statistics", "jobs:statistics", ("/statistics/", "/reports/weekly/")),
]
#: The tabs of a main section, by the URL name of its first page: name and URL name.
TABS = {
    "portal:home": [
        ("Overview", "portal:home"),
        ("Services", "statusboard:board"),
        ("Hosts", "hosts:exclusions"),
        ("Probes", "hosts:probes"),
        ("Calendar", "statusboard:calendar"),
        ("Monitoring", "statusboard:sources"),
    ],
    "production:request-list": [
        ("All", "production:request-list"),
        ("Your turn", "production:inbox"),
        ("Queue", "production:queue"),
        ("Campaigns", "production:campaigns"),
        ("Datasets", "datasets:list"),
        ("Quality", "quality:waiting"),
        ("Templates", "production:templates"),
        ("Types", "production:workflows"),
        ("Checks", "production:rules"),
    ],
    "jobs:statistics": [
        ("Explorer", "jobs:statistics"),
        ("Weekly reports", "progress:weekly-reports"),
    ],
}
#: Pages below a tab, by the first page of the tab. Some are the tab itself after a form was sent,
#: with what was entered and what it would do.
BELOW_TAB = {
    "production:inbox": {"production:desk", "production:desk-decide"},
    "production:queue": {
        "production:queue-move",
        "production:queue-priority",
        "production:queue-undo",
        "production:shares",
        "production:holds",
    },
}
#: Actions that the search offers besides its results: name and URL name.
ACTIONS = [
    ("New request", "production:request-start"),
    ("Import a request", "production:request-import"),
    ("Your turn", "production:inbox"),
    ("Approver's desk", "production:desk"),
    ("Queue", "production:queue"),
    ("Campaigns", "production:campaigns"),
    ("Datasets", "datasets:list"),
    ("Data quality", "quality:waiting"),
    ("Request templates", "production:templates"),
    ("Workflow types", "production:workflows"),
    ("Holds", "production:holds"),
    ("Recovery rules", "recovery:rules"),
    ("Shares of experiments", "production:shares"),
    ("Status board", "statusboard:board"),
    ("Hosts", "hosts:exclusions"),
    ("Hand-over notes", "portal:hand-over"),
    ("Maintenance calendar", "statusboard:calendar"),
    ("Notifications", "notifications:list"),
    ("Notification settings", "notifications:settings"),
    ("Your account", "accounts:settings"),
]
#: Who is offered the actions that are not open to everybody.
OFFERED_TO: dict[str, Callable[[Principal], bool]] = {
    "production:request-start": may_create,
    "production:request-import": may_create,
    "production:shares": is_opg,
    "portal:hand-over": is_opg,
}
#: The documentation of a page, by the beginning of its path: a document of `docs/`, or a section
#: of it. The first match counts.
HELP = [
    ("/requests/queue/", "priority"),
    ("/requests/shares/", "priority"),
    ("/requests/workflows/", "workflows"),
    ("/requests/checks/", "checks"),
    ("/requests/inbox/", "approvals"),
    ("/requests/holds/", "progress#holds"),
    ("/requests/", "requests"),
    ("/datasets/", "datasets"),
    ("/staging/", "catalogues#staging"),
    ("/quality/", "data-quality"),
    ("/submissions/", "submission"),
    ("/retries/", "submission"),
    ("/recovery/", "recovery"),
    ("/debug-runs/", "submission"),
    ("/reports/requests/", "progress#production-report"),
    ("/reports/frozen/", "progress#production-report"),
    ("/reports/weekly/", "progress#weekly-report"),
    ("/statistics/", "jobs#statistics"),
    ("/jobs/phases/", "phases"),
    ("/jobs/", "jobs"),
    ("/hosts/", "jobs#hosts-sites-and-users"),
    ("/excluded-hosts/", "hosts"),
    ("/probes/", "hosts#probes"),
    ("/sites/", "jobs#hosts-sites-and-users"),
    ("/users/", "jobs#hosts-sites-and-users"),
    ("/failures/", "diagnosis"),
    ("/archive/", "archive"),
    ("/services/", "monitoring"),
    ("/notifications/", "notifications"),
    ("/find/", "search"),
    ("/search/", "search"),
    ("/hand-over/", "first-steps"),
    ("/health/", "production"),
    ("/", "first-steps"),
]


def frame(request: HttpRequest) -> dict[str, Any]:
    """Return the context of every page. Parts that need queries are lazy.

    These are links, the strip, jobs whose logs are being read, and unread notifications.
    """
    user = getattr(request, "user", None)
    if user is None or not user.is_authenticated:
        return {}
    path = request.path
    main_section = None
    main_sections = []
    for name, url, prefixes in MAIN_SECTIONS:
        is_current = path.startswith(prefixes) or (url == "portal:home" and path == "/")
        main_sections.append((name, url, is_current))
        if is_current and main_section is None:
            main_section = (name, url)

    page = request.resolver_match.view_name if request.resolver_match else ""
    has_current_tab = False
    tabs = []
    for name, url in TABS.get(main_section[1] if main_section else "", []):
        is_current = path == reverse(url) or page in BELOW_TAB.get(url, ())
        tabs.append((name, url, is_current))
        has_current_tab |= is_current
    return {
        "main_sections": main_sections,
        "section_tabs": tabs if has_current_tab else [],
        "help_url": _help_with(path),
        "actions": SimpleLazyObject(
            lambda: [
                (name, reverse(url))
                for name, url in ACTIONS
                if url not in OFFERED_TO or OFFERED_TO[url](user)
            ]
        ),
        "up": [main_section] if main_section and path != reverse(main_section[1]) else [],
        "page_links": SimpleLazyObject(lambda: page_links(request, user)),
        "log_backlog": SimpleLazyObject(lambda: log_backlog(user=user, at=timezone.now())),
        "unread_notifications": SimpleLazyObject(lambda: unread_count(user)),
        "strip": SimpleLazyObject(lambda: read_strip(timezone.now(), user)),
    }


def _help_with(path: str) -> str:
    """Return the address of the documentation of the page at this path."""
    target = next(target for start, target in HELP if path.startswith(start))
    document, mark, section = target.partition("#")
    return reverse("core:help", args=[document]) + mark + section
