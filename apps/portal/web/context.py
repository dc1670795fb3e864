"""The context of every page: places, links across apps, and the warning strip."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from django.http import HttpRequest
from django.urls import ResolverMatch, reverse
from django.utils import timezone
from django.utils.functional import SimpleLazyObject
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.accounts.models import Principal, User
from apps.accounts.permissions import is_opg, may_see_health, operates_any
from apps.core.web.templatetags.formatting import number, when
from apps.diagnosis.domain.reading.backlog import log_backlog
from apps.diagnosis.enums import GroupKind, VerdictKind
from apps.diagnosis.models import FailureGroup
from apps.hosts.web.links import (
    has_measured_states,
    link_excluded_hosts,
    link_exclusion_of,
    steps_of_host_groups,
)
from apps.notifications.domain.notifications import unread_count
from apps.portal.pages.limit_proposals import propose_limits
from apps.portal.pages.opg_comment import link_comment_on
from apps.production.permissions import may_create
from apps.recovery.domain.explaining import (
    PlannedRetries,
    jobs_of_rules,
    planned_retries_of,
    planned_retries_of_request,
)
from apps.statusboard.domain.board.board import strip
from apps.statusboard.models import Incident
from apps.submission.domain.retries.batches import batches_with_jobs_of, states_in_batches
from apps.submission.domain.retries.offers import retry_offer
from apps.submission.domain.retries.only_owners import step_of_owners, steps_of_owners

#: The six places: name, URL name, and prefixes of the paths that belong to it.
MAIN_SECTIONS = [
    ("Operations", "portal:home", ("/services/", "/excluded-hosts/", "/probes/")),
    (
        "Requests",
        "production:request-list",
        ("/requests/", "/quality/", "/submissions/", "/datasets/"),
    ),
    ("Jobs", "jobs:list", ("/jobs/", "/hosts/", "/sites/", "/users/")),
    ("Failures", "diagnosis:failures", ("/failures/", "/retries/", "/recovery/")),
    ("Archive", "archive:jobs", ("/archive/",)),
    ("Statistics", "jobs:statistics", ("/statistics/", "/reports/")),
]
#: Tabs above the lists of a place, by the URL name of its first page: name and URL name.
SECTIONS = {
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
#: A page below a tab, by the first page of the tab.
PART_OF = {"production:inbox": "production:desk"}
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
    ("/health/", "production"),
    ("/", "first-steps"),
]
#: Links from a page of a lower app to pages of higher apps, by page: name and URL name.
PAGE_LINKS = {
    "request": [
        ("Submissions", "submission:request"),
        ("Files", "submission:files"),
        ("Quality", "quality:request"),
        ("Report", "progress:request-report"),
    ],
    "stages": [("Provenance", "datasets:dataset")],
    "dataset": [("Submissions", "submission:request")],
    "stage_scripts": [("Scripts", "archive:jobs")],
    "group": [("Retry jobs…", "submission:retry-jobs")],
    "example": [("Debug newest job…", "submission:debug-run")],
    "group_actions": [("Notify experiment…", "portal:notify-experiment")],
    "live": [("One row per array", "portal:live-jobs")],
    "running": [("Follow log", "diagnosis:open-running-log")],
    "slice": [("Failure groups", "diagnosis:slice-groups")],
    "host": [("Exclusion from new jobs", "hosts:of-host"), ("History", "hosts:history")],
    "failures": [("Recovery", "recovery:rules"), ("Retries", "submission:retry-batches")],
    "account": [
        ("Notifications", "notifications:settings"),
        ("API reference", "api:reference"),
        ("Portal health", "portal:health"),
    ],
}
#: The same links for users outside the OPG.
_OUTSIDE_OPG = PAGE_LINKS | {
    "account": [link for link in PAGE_LINKS["account"] if link[1] != "portal:health"],
    "group_actions": [],
}
_LEFT_TO_RULES = "If you retry them, the rules leave them to you."


def frame(request: HttpRequest) -> dict[str, Any]:
    """Return the context of every page. Parts that need queries are lazy.

    These are links, the strip, jobs whose logs are being read, and unread notifications.
    """
    user = getattr(request, "user", None)
    if user is None or not user.is_authenticated:
        return {}
    path = request.path
    place = None
    places = []
    for name, url, prefixes in MAIN_SECTIONS:
        is_current = path.startswith(prefixes) or (url == "portal:home" and path == "/")
        places.append((name, url, is_current))
        if is_current and place is None:
            place = (name, url)

    has_current_section = False
    sections = []
    for name, url in SECTIONS.get(place[1] if place else "", []):
        is_current = path in {reverse(url), reverse(PART_OF.get(url, url))}
        sections.append((name, url, is_current))
        has_current_section |= is_current
    return {
        "places": places,
        "sections": sections if has_current_section else [],
        "help_url": _help_with(path),
        "actions": SimpleLazyObject(
            lambda: [
                (name, reverse(url))
                for name, url in ACTIONS
                if url not in OFFERED_TO or OFFERED_TO[url](user)
            ]
        ),
        "up": [place] if place and path != reverse(place[1]) else [],
        "page_links": SimpleLazyObject(lambda: _page_links(request, user)),
        "log_backlog": SimpleLazyObject(lambda: log_backlog(user=user, at=timezone.now())),
        "unread_notifications": SimpleLazyObject(lambda: unread_count(user)),
        "strip": SimpleLazyObject(lambda: strip(timezone.now(), user)),
    }


def _help_with(path: str) -> str:
    """Return the address of the documentation of the page at this path."""
    place = next(place for start, place in HELP if path.startswith(start))
    document, mark, section = place.partition("#")
    return reverse("core:help", args=[document]) + mark + section


def _page_links(request: HttpRequest, user: User) -> Mapping[str, Any]:
    """Return the links to higher apps.

    The link of a failure group states what its dry run would retry, or a sentence why nothing.
    A sentence says what rules will retry by themselves.
    Where its jobs hit a limit, another link proposes a larger one; that of a host excludes it, and
    the list of groups says which hosts need not be drained. The status board names clusters with
    excluded hosts, and loads what probes measured.
    """
    links: Mapping[str, Any] = PAGE_LINKS if is_opg(user) else _OUTSIDE_OPG
    if may_see_health(user):
        links = {**links, "account": PAGE_LINKS["account"]}
    may_retry = operates_any(user)
    links = {**links, "may_retry": may_retry}
    if not may_retry:
        links = {**links, "example": []}
    match = request.resolver_match
    if match is not None and match.view_name == "statusboard:board":
        at = timezone.now()
        cards = [("Measured by probes", "hosts:probes")] if has_measured_states(at) else []
        return {**links, "board": link_excluded_hosts(at), "board_cards": cards}
    if match is not None and match.view_name == "diagnosis:failures":
        at = timezone.now()
        return {**links, "host_steps": steps_of_owners(user, at) | steps_of_host_groups(at)}
    if match is not None and (source := _source_of_retries(match)):
        planned = planned_retries_of(source, user)
        return {**links, "planned_retries": _sentences(planned, may_retry)}
    if match is not None and match.view_name in ("portal:request", "progress:request-progress"):
        planned = planned_retries_of_request(match.kwargs["key"], user)
        return {**links, "request_retries": planned, "earliest_retry": _earliest(planned)}
    if match is None or match.view_name not in ("diagnosis:group", "diagnosis:act-on-group"):
        return links
    group = FailureGroup.objects.get(pk=match.kwargs["pk"])
    planned = planned_retries_of(group, user)
    offer = retry_offer(source=group, user=user, at=timezone.now(), planned=planned.jobs)
    host_steps = steps_of_host_groups(timezone.now()) if group.host else {}
    works_again = group.pk in host_steps
    is_of_service = group.kind == GroupKind.ERROR and group.verdict == VerdictKind.SERVICE
    is_left_to_owners = is_of_service and offer.is_left_to_owners
    if is_left_to_owners:
        host_steps[group.pk] = step_of_owners(user)
    proposals = propose_limits([group], user).values()
    return {
        **links,
        "group": [(offer.label, url) for _, url in links["group"] if offer.label],
        "group_offer": offer,
        "group_without_retry": [offer.why_none] if offer.why_none else [],
        "is_left_to_owners": is_left_to_owners,
        "planned_retries": _sentences(planned, may_retry),
        "group_comment": [] if may_retry else link_comment_on(group, user),
        "group_batches": batches_with_jobs_of(group, user)[:1],
        "group_proposals": [(proposal.label, proposal.url) for proposal in proposals],
        "states_in_batches": states_in_batches(group),
        "jobs_of_rules": jobs_of_rules(group, user),
        "host_steps": host_steps,
        "group_host": link_exclusion_of(group, user, timezone.now(), works_again=works_again),
    }


def _source_of_retries(match: ResolverMatch) -> FailureGroup | Incident | None:
    """Return the group or incident of a dry run, or the incident of its page."""
    kind = match.kwargs.get("kind", "")
    if match.view_name == "portal:incident":
        kind = "incident"
    elif match.view_name != "submission:retry-jobs":
        return None
    models: dict[str, type[FailureGroup | Incident]] = {"group": FailureGroup, "incident": Incident}
    model = models.get(kind)
    return model.objects.filter(pk=match.kwargs["pk"]).first() if model else None


def _earliest(planned: PlannedRetries) -> datetime | None:
    """Return when the first planned retry can be submitted; None if at once."""
    if planned.first_at and planned.first_at > timezone.now():
        return planned.first_at
    return None


def _sentences(planned: PlannedRetries, may_retry: bool) -> list[SafeString]:
    """Return the sentence about the failed jobs that rules will retry by themselves."""
    if not planned.jobs:
        return []
    jobs = "job" if planned.jobs == 1 else "jobs"
    earliest: SafeString | str = ", a few at a time"
    if first_at := _earliest(planned):
        earliest = format_html(", not before {}", when(first_at))
    sentence = format_html(
        '{} {} will be retried by <a href="{}">recovery rules</a> without a person{}. {}',
        number(planned.jobs),
        jobs,
        reverse("recovery:rules"),
        earliest,
        _LEFT_TO_RULES if may_retry else "",
    )
    return [sentence]
