"""Telling people of events, and what they say about being told. Sending is in `sending`."""

from datetime import datetime

from django.db import transaction
from django.utils.crypto import get_random_string

from apps.accounts.models import Principal, User
from apps.core.domain.events import publish
from apps.notifications.models import Preferences


@transaction.atomic
def make_feed_address(*, user: User, by: Principal, at: datetime) -> None:
    """Give the person's feeds a new secret address; the one before works no more."""
    Preferences.objects.update_or_create(user=user, defaults={"feed_name": get_random_string(16)})
    publish(kind="feed.address_made", target=user, by=by, at=at)


@transaction.atomic
def revoke_feed_address(*, user: User, by: Principal, at: datetime) -> None:
    """Make the address of the person's feeds useless."""
    if Preferences.objects.filter(user=user, feed_name__isnull=False).update(feed_name=None):
        publish(kind="feed.address_revoked", target=user, by=by, at=at)
