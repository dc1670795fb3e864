"""Webhooks: add, enable, disable, remove and list them. `delivery` calls them."""

from datetime import datetime

from django.conf import settings
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils.crypto import get_random_string

from apps.accounts.models import Experiment, Principal, User
from apps.accounts.permissions import is_opg
from apps.core.domain.event_kinds import kind_of
from apps.core.domain.events import publish
from apps.core.domain.secrets.signing_keys import key_id
from apps.core.enums import Audience
from apps.core.errors import InvalidFields, NotAllowed
from apps.notifications.domain.notifications import notify_users
from apps.notifications.domain.webhook_addresses import BadAddress, check_address
from apps.notifications.enums import MessageState
from apps.notifications.models import Message, Webhook

#: Maximum number of webhooks of a user, or of an experiment.
MAX_WEBHOOKS = 5


def webhooks_for(user: User) -> QuerySet[Webhook]:
    """Return the webhooks that the user may change.

    They are the user's own webhooks; for the OPG also the webhooks of experiments.
    """
    mine = Q(user=user)
    if is_opg(user):
        mine |= Q(experiment__isnull=False)
    return Webhook.objects.filter(mine).select_related("experiment").order_by("pk")


@transaction.atomic
def add_webhook(*, url: str, experiment: Experiment | None, by: User, at: datetime) -> Webhook:
    """Add a webhook of the user, or as the OPG one of an experiment.

    Raises `NotAllowed`, and `InvalidFields` if the URL is not allowed or there are too many.
    """
    if experiment is not None and not is_opg(by):
        raise NotAllowed("Only the OPG can add webhooks of experiments.")
    User.objects.select_for_update(no_key=True).get(pk=by.pk)
    owner = {"experiment": experiment} if experiment else {"user": by}
    try:
        check_address(url)
    except BadAddress as error:
        raise InvalidFields({"url": [str(error)]}) from None
    if Webhook.objects.filter(**owner).count() >= MAX_WEBHOOKS:
        raise InvalidFields(
            {"url": [f"You already have {MAX_WEBHOOKS} webhooks. Remove one first."]}
        )
    nonce = get_random_string(32)
    hook = Webhook.objects.create(
        url=url,
        nonce=nonce,
        key_id=key_id(settings.SECRET_KEY),
        created_at=at,
        created_by=by,
        **owner,
    )
    publish(kind="webhook.added", target=hook, by=by, at=at, data={"host": hook.host})
    return hook


@transaction.atomic
def renew_secret(*, webhook: Webhook, by: User, at: datetime) -> Webhook:
    """Return the webhook with a new secret of the present `SECRET_KEY`.

    Calls that wait are signed with it, too.
    """
    hook = Webhook.objects.select_for_update(no_key=True, of=("self",)).get(pk=webhook.pk)
    hook.nonce = get_random_string(32)
    hook.key_id = key_id(settings.SECRET_KEY)
    hook.save(update_fields=["nonce", "key_id"])
    publish(kind="webhook.secret_renewed", target=hook, by=by, at=at)
    return hook


@transaction.atomic
def enable_webhook(*, webhook: Webhook, by: User, at: datetime) -> None:
    """Enable a webhook again; its waiting calls are sent now.

    From then on the user counts as who added it.
    """
    Webhook.objects.filter(pk=webhook.pk).update(
        enabled=True, failing_since=None, retry_at=None, failures=0, last_error="", created_by=by
    )
    Message.objects.filter(
        webhook=webhook, state=MessageState.WAITING, due_at__gt=at, attempts__gt=0
    ).update(due_at=at)
    publish(kind="webhook.enabled", target=webhook, by=by, at=at)


@transaction.atomic
def remove_webhook(*, webhook: Webhook, by: User, at: datetime) -> None:
    """Remove a webhook and its waiting calls."""
    publish(kind="webhook.removed", target=webhook, by=by, at=at)
    webhook.delete()


@transaction.atomic
def disable_webhook(*, webhook: Webhook, by: Principal, at: datetime, reason: str) -> None:
    """Disable a webhook, and notify its owner; its calls wait until it is enabled again."""
    if not Webhook.objects.filter(pk=webhook.pk, enabled=True).update(
        enabled=False, last_error=reason
    ):
        return
    event = publish(kind="webhook.disabled", target=webhook, by=by, at=at, reason=reason)
    owner = User.objects.select_related("notification_preferences").get(pk=webhook.created_by_id)
    if owner.is_active:
        notify_users(event, {owner: kind_of(event).notifies[Audience.OWNER]})
