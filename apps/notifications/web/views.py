"""Pages of notifications, their settings, webhooks and feeds, and of following a request."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from apps.accounts.web.http_request import AuthenticatedRequest
from apps.core.domain.event_kinds import headline
from apps.core.domain.pagination import newest_first
from apps.core.enums import Group
from apps.core.errors import NotAllowed
from apps.core.web.errors import show_errors
from apps.notifications.domain import webhooks
from apps.notifications.domain.atom_feeds import (
    addresses_of,
    make_feed_address,
    revoke_feed_address,
)
from apps.notifications.domain.mail import mail_is_configured
from apps.notifications.domain.notifications import (
    mark_read,
    select_unread,
    unread_count,
    visible_notifications,
    with_texts,
)
from apps.notifications.domain.preferences import (
    follow_request,
    hours_of,
    level_of,
    save_preferences,
)
from apps.notifications.domain.webhook_tests import newest_tests, queue_test
from apps.notifications.domain.webhooks import (
    enable_webhook,
    remove_webhook,
    renew_secret,
    webhooks_for,
)
from apps.notifications.enums import Level, MessageState
from apps.notifications.models import Notification
from apps.notifications.web.forms import PreferencesForm, ReadForm, WebhookForm
from apps.production.models import Request
from apps.search.domain.line_watches import unwatch_line, watches_of
from apps.search.domain.line_watches import with_texts as with_line_texts

#: The groups of notifications that the list can show alone.
SHOWN_ALONE = (Group.TURN, Group.TROUBLE, Group.FAILURES)

#: Notifications of one kind and day that become one line of the list.
FEWEST_ALIKE = 3


@dataclass(frozen=True)
class NotificationEntry:
    """A line of the list: a notification, or several of one kind and day, newest first."""

    rows: Sequence[Notification]
    new_pks: Collection[int]

    @property
    def first(self) -> Notification:
        return self.rows[0]

    @property
    def title(self) -> str:
        return headline(self.first.event)

    @property
    def others(self) -> list[tuple[Notification, str]]:
        return [(notification, headline(notification.event)) for notification in self.rows[1:]]

    @property
    def new(self) -> str:
        """The IDs of the unread ones, as the form to mark them as read takes them."""
        return ",".join(
            str(notification.pk) for notification in self.rows if notification.pk in self.new_pks
        )


@require_safe
def notification_list(request: AuthenticatedRequest) -> HttpResponse:
    rows = visible_notifications(request.user).select_related("event", "request")
    only_unread = request.GET.get("show") == "unread"
    groups = [(group.value, group.label.partition(":")[0]) for group in SHOWN_ALONE]
    shown_group = request.GET.get("group")
    if shown_group in SHOWN_ALONE:
        rows = rows.filter(group=shown_group)
    page = newest_first(select_unread(rows) if only_unread else rows, by="at", query=request.GET)
    shown_pks = [notification.pk for notification in page.rows]
    new_pks = set(select_unread(rows).filter(pk__in=shown_pks).values_list("pk", flat=True))
    context = {
        "page": page,
        "entries": _entries(with_texts(page.rows), new_pks),
        "only_unread": only_unread,
        "groups": groups,
        "shown_group": shown_group if shown_group in SHOWN_ALONE else "",
        "until": max(shown_pks, default=0),
        "unread": unread_count(request.user),
        "watched_lines": with_line_texts(watches_of(request.user), user=request.user),
    }
    return render(request, "notifications/list.html", context)


def _entries(
    notifications: Sequence[Notification], new_pks: Collection[int]
) -> list[NotificationEntry]:
    """Return the lines of the list; many events of one kind and day are one line."""
    alike: dict[tuple[str, date], list[Notification]] = {}
    for notification in notifications:
        key = (notification.event.kind, timezone.localtime(notification.at).date())
        alike.setdefault(key, []).append(notification)
    entries = []
    for members in alike.values():
        if len(members) >= FEWEST_ALIKE:
            entries.append(NotificationEntry(members, new_pks))
        else:
            entries += [NotificationEntry([notification], new_pks) for notification in members]
    return sorted(entries, key=lambda entry: (entry.first.at, entry.first.pk), reverse=True)


@require_POST
def read(request: AuthenticatedRequest) -> HttpResponse:
    """Mark one notification as read, or all that the page showed."""
    form = ReadForm(request.POST)
    if not form.is_valid():
        messages.error(request, "Nothing was marked as read. Reload the page and try again.")
        return redirect("notifications:list")
    mark_read(user=request.user, at=timezone.now(), **form.cleaned_data)
    return redirect("notifications:list")


@require_safe
def open_notification(request: AuthenticatedRequest, pk: int) -> HttpResponse:
    """Mark a notification as read and go to what it is about."""
    notification = get_object_or_404(
        visible_notifications(request.user).select_related("request", "event"), pk=pk
    )
    if request.method == "GET":
        mark_read(user=request.user, at=timezone.now(), until=pk, only=[pk])
    return redirect(notification)


@require_POST
def remove_watch(request: AuthenticatedRequest, pk: int) -> HttpResponse:
    """Watch a line of logs no longer."""
    watch = get_object_or_404(watches_of(request.user), pk=pk)
    unwatch_line(user=request.user, line_hash=watch.unsigned_hash)
    messages.success(request, "You no longer watch this line.")
    return redirect("notifications:list")


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def my_settings(request: AuthenticatedRequest) -> HttpResponse:
    if request.method != "POST":
        return _settings(request)
    form = PreferencesForm(request.POST, user=request.user)
    if form.is_valid():
        with show_errors(request, form):
            save_preferences(user=request.user, **form.values())
            messages.success(request, "Saved.")
            return redirect("notifications:settings")
    return _settings(request, 400, form=form)


@require_POST
def feed_address(request: AuthenticatedRequest) -> HttpResponse:
    """Create a new URL of the user's feeds, or revoke it."""
    user = request.user
    if request.POST.get("do") == "revoke":
        revoke_feed_address(user=user, by=user, at=timezone.now())
        messages.success(request, "The URL of your feeds is revoked.")
    else:
        make_feed_address(user=user, by=user, at=timezone.now())
        messages.success(request, "Your feeds have a new URL.")
    return redirect("notifications:settings")


@require_POST
def add_webhook(request: AuthenticatedRequest) -> HttpResponse:
    """Add a webhook, and show its secret once."""
    form = WebhookForm(request.POST, user=request.user)
    if form.is_valid():
        with show_errors(request, form):
            fields = {"experiment": None, **form.cleaned_data}
            hook = webhooks.add_webhook(by=request.user, at=timezone.now(), **fields)
            return _settings(request, new_secret=hook.secret, new_secret_of=hook.host)
    return _settings(request, 400, webhook_form=form)


@require_POST
def change_webhook(request: AuthenticatedRequest, pk: int) -> HttpResponse:
    """Remove, test or enable a webhook, or make a new secret, which is shown once."""
    user = request.user
    hook = get_object_or_404(webhooks_for(user), pk=pk)
    if request.POST.get("do") == "enable":
        enable_webhook(webhook=hook, by=user, at=timezone.now())
        messages.success(request, "Webhook enabled.")
    elif request.POST.get("do") == "secret":
        renewed = renew_secret(webhook=hook, by=user, at=timezone.now())
        return _settings(request, new_secret=renewed.secret, new_secret_of=renewed.host)
    elif request.POST.get("do") == "test":
        try:
            queue_test(webhook=hook, by=user, at=timezone.now())
        except NotAllowed as error:
            messages.error(request, str(error))
        return redirect(reverse("notifications:settings") + "#webhooks")
    else:
        remove_webhook(webhook=hook, by=user, at=timezone.now())
        messages.success(request, "Webhook removed.")
    return redirect("notifications:settings")


@require_http_methods(["GET", "HEAD", "POST"])
def follow(request: AuthenticatedRequest, key: str) -> HttpResponse:
    """Watch or mute a request; the page of the request shows the same card."""
    user = request.user
    visible = Request.objects.visible_to(user).select_related("experiment")
    production_request = get_object_or_404(visible, key=key)

    if request.method == "POST":
        level = request.POST.get("level", "")
        if level not in {"", *Level.values}:
            messages.error(
                request, "Nothing was changed. Choose to watch or mute the request, or neither."
            )
            return redirect(production_request)
        follow_request(request=production_request, user=user, level=level)
        confirmations = {
            "watching": "You are watching this request.",
            "muted": "You have muted this request.",
        }
        messages.success(
            request, confirmations.get(level, "You get the notifications of your roles.")
        )
        return redirect(production_request)

    preferences = getattr(user, "notification_preferences", None)
    context = {
        "object": production_request,
        "level": level_of(user, production_request),
        "feeds": addresses_of(preferences, production_request),
    }
    return render(request, "notifications/follow.html", context)


def _settings(request: AuthenticatedRequest, status: int = 200, **more: Any) -> HttpResponse:
    user = request.user
    hooks = list(webhooks_for(user))
    tests = newest_tests(hooks)
    waits = [test.state == MessageState.WAITING for test in tests.values()]
    context = {
        "form": PreferencesForm(user=user),
        "webhook_form": WebhookForm(user=user),
        "webhooks": [(hook, tests.get(hook.pk)) for hook in hooks],
        "a_test_waits": any(waits),
        "feeds": addresses_of(getattr(user, "notification_preferences", None)),
        "mail_works": mail_is_configured(),
        "zone": hours_of(user).zone,
        **more,
    }
    return render(request, "notifications/settings.html", context, status=status)
