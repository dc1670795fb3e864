"""Atom feeds for readers without a session: the token in the URL opens them, and nothing else."""

import hashlib
from collections.abc import Sequence
from datetime import datetime

from django.contrib.auth.decorators import login_not_required
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils.cache import get_conditional_response, patch_cache_control
from django.utils.http import http_date, quote_etag
from django.views.decorators.http import require_safe

from apps.accounts.models import Experiment, User
from apps.accounts.permissions import scope_of
from apps.core.domain.events import events_of
from apps.notifications.domain.atom_feeds import (
    SIZE,
    Entry,
    atom,
    events_of_experiment,
    hold_events_of,
    reader_of,
)
from apps.notifications.domain.notifications import visible_notifications
from apps.production.models import Request


@login_not_required
@require_safe
def inbox(request: HttpRequest, token: str) -> HttpResponseBase:
    user = reader_or_404(token)
    rows = (
        visible_notifications(user).select_related("event", "request").order_by("-at", "-pk")[:SIZE]
    )
    entries = [(notification.event, notification.get_absolute_url()) for notification in rows]
    return _answer(request, f"opsportal: {user}", reverse("notifications:list"), entries)


@login_not_required
@require_safe
def of_request(request: HttpRequest, token: str, key: str) -> HttpResponseBase:
    production_request = get_object_or_404(
        Request.objects.visible_to(reader_or_404(token)), key=key
    )
    path = production_request.get_absolute_url()
    entries = [(event, path) for event in events_of(production_request).order_by("-id")[:SIZE]]
    return _answer(request, f"opsportal: {production_request}", path, entries)


@login_not_required
@require_safe
def of_experiment(request: HttpRequest, token: str, key: str) -> HttpResponseBase:
    user = reader_or_404(token)
    experiment = get_object_or_404(Experiment, key=key)
    if not scope_of(user).sees(experiment.pk):
        raise Http404

    events = list(events_of_experiment(experiment)[:SIZE])
    production_requests = Request.objects.filter(pk__in={event.target_id for event in events})
    paths = {
        str(production_request.pk): production_request.get_absolute_url()
        for production_request in production_requests
    }
    entries = [(event, paths[event.target_id]) for event in events]
    entries += [(event, reverse("production:holds")) for event in hold_events_of(experiment)[:SIZE]]
    newest = sorted(entries, key=lambda entry: entry[0].pk, reverse=True)[:SIZE]

    path = f"{reverse('production:request-list')}?experiment={experiment.key}"
    return _answer(request, f"opsportal: requests of {experiment}", path, newest)


def reader_or_404(token: str) -> User:
    """Return the user whose feeds the token opens."""
    user = reader_of(token)
    if user is None:
        raise Http404
    return user


def _answer(
    request: HttpRequest, title: str, path: str, entries: Sequence[Entry]
) -> HttpResponseBase:
    text, updated = atom(title=title, path=path, feed_path=request.path, entries=entries)
    return feed_response(request, text, updated)


def feed_response(request: HttpRequest, text: bytes, updated: datetime) -> HttpResponseBase:
    """Answer with a feed, or with 304 if the reader has it."""
    response = HttpResponse(text, content_type="application/atom+xml; charset=utf-8")
    etag, modified = quote_etag(hashlib.sha256(text).hexdigest()[:32]), int(updated.timestamp())
    response["ETag"], response["Last-Modified"] = etag, http_date(modified)
    patch_cache_control(response, private=True, no_cache=True)
    answer = get_conditional_response(request, etag=etag, last_modified=modified, response=response)
    return answer or response
