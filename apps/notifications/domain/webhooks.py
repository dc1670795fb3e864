"""Telling people of events, and what they say about being told. Sending is in `sending`."""

from datetime import datetime

from django.db import transaction
from django.utils.crypto import get_random_string

from apps.accounts.models import Experiment, Principal, User
from apps.accounts.permissions import is_opg
from apps.core.domain.event_kinds import kind_of
from apps.core.domain.events import publish
from apps.core.enums import Audience
from apps.core.errors import InvalidFields, NotAllowed
from apps.notifications.domain import webhook_addresses
from apps.notifications.domain.notifications import _tell
from apps.notifications.domain.secrets import secret_of
from apps.notifications.enums import MessageState
from apps.notifications.models import Message, Webhook

#: So many webhooks a person, or an experiment, may have.
MOST_WEBHOOKS = 5


@transaction.atomic
def add_webhook(*, url: str, experiment: Experiment | None, by: User, at: datetime) -> tuple[Webhook, str]:
    """Add a webhook of a person's own, or by the OPG of an experiment; return it with its secret.

    Raises `NotAllowed`, `InvalidFields` where the address may not be called or there are too many.
    """
    if experiment is not None and not is_opg(by):
        raise NotAllowed("Only the OPG adds webhooks of experiments.")
    User.objects.select_for_update(no_key=True).get(pk=by.pk)
    owner = {"experiment": experiment} if experiment else {"user": by}
    try:
        webhook_addresses.check_address(url)
    except webhook_addresses.BadAddress as error:
        raise InvalidFields({"url": [str(error)]}) from None
    if Webhook.objects.filter(**owner).count() >= MOST_WEBHOOKS:
        raise InvalidFields({"url": [f"There are {MOST_WEBHOOKS} already: remove one."]})
    nonce = get_random_string(32)
    hook = Webhook.objects.create(url=url, nonce=nonce, created_at=at, created_by=by, **owner)
    publish(kind="webhook.added", target=hook, by=by, at=at, data={"host": webhook_addresses.host_of(url)})
    return hook, secret_of(hook)


@transaction.atomic
def enable_webhook(*, webhook: Webhook, by: User, at: datetime) -> None:
    """Switch a webhook on again; what waited for it goes out now."""
    Webhook.objects.filter(pk=webhook.pk).update(
        enabled=True, failing_since=None, retry_at=None, failures=0, last_error=""
    )
    Message.objects.filter(webhook=webhook, state=MessageState.WAITING, due_at__gt=at, attempts__gt=0).update(due_at=at)
    publish(kind="webhook.enabled", target=webhook, by=by, at=at)


@transaction.atomic
def remove_webhook(*, webhook: Webhook, by: User, at: datetime) -> None:
    """Remove a webhook, and what waits for it."""
    publish(kind="webhook.removed", target=webhook, by=by, at=at)
    webhook.delete()


@transaction.atomic
def disable_webhook(*, webhook: Webhook, by: Principal, at: datetime) -> None:
    """Switch off a webhook that fails, and tell its owner; what waits for it stays until it is switched on."""
    if not Webhook.objects.filter(pk=webhook.pk, enabled=True).update(enabled=False):
        return
    event = publish(
        kind="webhook.disabled",
        target=webhook,
        by=by,
        at=at,
        reason=f"{webhook_addresses.host_of(webhook.url)} did not answer.",
    )
    owner = User.objects.select_related("notification_preferences").get(pk=webhook.created_by_id)
    if owner.is_active:
        _tell(event, {owner: kind_of(event).notifies[Audience.OWNER]})
