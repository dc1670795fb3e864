"""Links and figures that the pages of lower apps show of higher apps.

Every page has `PAGE_LINKS`. `_BY_VIEW` says which pages have more.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.accounts.models import User
from apps.accounts.permissions import is_opg, may_see_health, operates_any
from apps.core.web.templatetags.formatting import number, when
from apps.diagnosis.enums import GroupKind, VerdictKind
from apps.diagnosis.models import FailureGroup
from apps.hosts.web.links import (
    has_measured_states,
    link_excluded_hosts,
    link_exclusion_of,
    steps_of_host_groups,
)
from apps.portal.pages.limit_proposals import propose_limits
from apps.portal.pages.opg_comment import link_comment_on
from apps.recovery.domain.decisions.explanations import (
    PlannedRetries,
    jobs_of_rules,
    planned_retries_of,
    planned_retries_of_request,
)
from apps.statusboard.models import Incident
from apps.submission.domain.retries.batches import (
    batches_with_jobs_of,
    states_in_batches,
)
from apps.submission.domain.retries.offers import retry_offer
from apps.submission.domain.retries.only_owners import step_of_owners, steps_of_owners

#: Links from a page of a lower app to pages of higher apps, by page: name and URL name.
PAGE_LINKS = {
    "request": [
        ("Submissions", "submission:request"),
        ("Files", "submission:files"),
        ("Quality", "quality:request"),
        ("Report", "progress:request-report"),
    ],
    "stages": [("Provenance", "datasets:dataset")],
    "dataset": [("Submissions", "submission:request"), ("Files", "submission:files")],
    "stage_scripts": [("Scripts", "archive:jobs")],
    "group": [("Retry jobs…", "submission:retry-jobs")],
    "example": [("Debug newest job…", "submission:debug-run")],
    "group_actions": [("Notify experiment…", "portal:notify-experiment")],
    "live": [("One row per array", "portal:live-jobs")],
    "running": [("Follow log", "diagnosis:open-running-log")],
    "slice": [("Failure groups", "diagnosis:slice-groups")],
    "host": [("Exclusion from new jobs", "hosts:of-host"), ("History", "hosts:history")],
    "failures": [("Recovery", "recovery:rules"), ("Retries", "submission:retry-batches")],
    "accounting": [("See the error", "portal:health")],
    "account": [
        ("Notifications", "notifications:settings"),
        ("API reference", "api:reference"),
        ("Portal health", "portal:health"),
    ],
}
_LEFT_TO_RULES = "If you retry them, the rules leave them to you."


def page_links(request: HttpRequest, user: User) -> dict[str, Any]:
    """Return the links of a page to pages of higher apps, and what it shows of these apps."""
    links = _links_for(user)
    match = request.resolver_match
    if match is not None and match.view_name in _BY_VIEW:
        links |= _BY_VIEW[match.view_name](user, timezone.now(), **match.kwargs)
    return links


def _links_for(user: User) -> dict[str, Any]:
    """Return the links that a user may follow, on any page."""
    links: dict[str, Any] = dict(PAGE_LINKS)
    if not is_opg(user):
        links["group_actions"] = []
        if not may_see_health(user):
            links["account"] = [link for link in links["account"] if link[1] != "portal:health"]
            links["accounting"] = []
    links["may_retry"] = operates_any(user)
    if not links["may_retry"]:
        links["example"] = []
    return links


def _on_status_board(user: User, at: datetime) -> dict[str, Any]:
    """Name the clusters with excluded hosts, and load what probes measured."""
    cards = [("Measured by probes", "hosts:probes")] if has_measured_states(at) else []
    return {"board": link_excluded_hosts(at), "board_cards": cards}


def _on_failures(user: User, at: datetime) -> dict[str, Any]:
    """Say which failures are left to owners, and which hosts work again."""
    return {"host_steps": steps_of_owners(user, at) | steps_of_host_groups(at)}


def _on_incident(user: User, at: datetime, *, pk: int) -> dict[str, Any]:
    incident = Incident.objects.filter(pk=pk).first()
    return _retries_by_rules(incident, user, at) if incident else {}


def _on_dry_run(user: User, at: datetime, *, kind: str, pk: int) -> dict[str, Any]:
    """Say what rules will retry of the failure group or incident whose jobs are retried."""
    models: dict[str, type[FailureGroup | Incident]] = {"group": FailureGroup, "incident": Incident}
    model = models.get(kind)
    source = model.objects.filter(pk=pk).first() if model else None
    return _retries_by_rules(source, user, at) if source else {}


def _retries_by_rules(source: FailureGroup | Incident, user: User, at: datetime) -> dict[str, Any]:
    planned = planned_retries_of(source, user)
    return {"planned_retries": _describe_retries(planned, user, at)}


def _on_request(user: User, at: datetime, *, key: str) -> dict[str, Any]:
    """Say what rules will retry of a request."""
    planned = planned_retries_of_request(key, user)
    return {"request_retries": planned, "earliest_retry": _earliest_retry(planned, at)}


def _on_failure_group(user: User, at: datetime, *, pk: int) -> dict[str, Any]:
    """Offer what can be done about a failure group.

    Its link states what a dry run would retry, or a sentence why nothing. Where its jobs hit a
    limit, another link proposes a larger one; for a host, it excludes the host.
    """
    group = FailureGroup.objects.get(pk=pk)
    planned = planned_retries_of(group, user)
    offer = retry_offer(source=group, user=user, at=at, planned=planned.jobs)
    host_steps = steps_of_host_groups(at) if group.host else {}
    works_again = group.pk in host_steps
    is_of_service = group.kind == GroupKind.ERROR and group.verdict == VerdictKind.SERVICE
    is_left_to_owners = is_of_service and offer.is_left_to_owners
    if is_left_to_owners:
        host_steps[group.pk] = step_of_owners(user)
    return {
        "group": [(offer.label, url) for _, url in PAGE_LINKS["group"] if offer.label],
        "group_offer": offer,
        "group_retry_url": reverse("submission:retry-jobs", args=["group", group.pk]),
        "group_without_retry": [offer.why_none] if offer.why_none else [],
        "is_left_to_owners": is_left_to_owners,
        "planned_retries": _describe_retries(planned, user, at),
        "group_comment": [] if operates_any(user) else link_comment_on(group, user),
        "group_batches": batches_with_jobs_of(group, user)[:1],
        "group_proposals": [
            (proposal.label, proposal.url) for proposal in propose_limits([group], user).values()
        ],
        "states_in_batches": states_in_batches(group),
        "jobs_of_rules": jobs_of_rules(group, user),
        "host_steps": host_steps,
        "group_host": link_exclusion_of(group, user, at, works_again=works_again),
    }


#: What some pages have besides `PAGE_LINKS`, by the name of the view. The functions take the user,
#: the time and the parameters of the URL.
_BY_VIEW: dict[str, Callable[..., Mapping[str, Any]]] = {
    "statusboard:board": _on_status_board,
    "diagnosis:failures": _on_failures,
    "diagnosis:group": _on_failure_group,
    "diagnosis:act-on-group": _on_failure_group,
    "portal:incident": _on_incident,
    "submission:retry-jobs": _on_dry_run,
    "portal:request": _on_request,
    "progress:request-progress": _on_request,
}


def _describe_retries(planned: PlannedRetries, user: User, at: datetime) -> list[SafeString]:
    """Return the sentence about the failed jobs that rules will retry by themselves."""
    if not planned.jobs:
        return []
    earliest: SafeString | str = ", a few at a time"
    if first_at := _earliest_retry(planned, at):
        earliest = format_html(", not before {}", when(first_at))
    sentence = format_html(
        '{} {} will be retried by <a href="{}">recovery rules</a> without a person{}. {}',
        number(planned.jobs),
        "job" if planned.jobs == 1 else "jobs",
        reverse("recovery:rules"),
        earliest,
        _LEFT_TO_RULES if operates_any(user) else "",
    )
    return [sentence]


def _earliest_retry(planned: PlannedRetries, at: datetime) -> datetime | None:
    """Return when the first planned retry can be submitted; None if at once."""
    if planned.first_at and planned.first_at > at:
        return planned.first_at
    return None
