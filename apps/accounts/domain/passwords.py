"""New passwords, and links to set one."""

from datetime import datetime, timedelta

from django.db import transaction

from apps.accounts.models import Principal, User
from apps.core.domain.background import enqueue
from apps.core.domain.events import events_of, publish

#: Minimum time between two mails with a link to set a new password.
RESET_PAUSE = timedelta(minutes=5)


@transaction.atomic
def set_password(*, user: User, password: str, by: Principal, at: datetime) -> None:
    """Store the hash of a new password. Links mailed before become invalid."""
    user.set_password(password)
    user.save(update_fields=["password"])
    publish(kind="account.password_changed", target=user, by=by, at=at)


@transaction.atomic
def request_password_reset(*, user: User, at: datetime, by: Principal = "login page") -> bool:
    """Mail a link to set a new password; return False if one was mailed within `RESET_PAUSE`."""
    User.objects.select_for_update(no_key=True).get(pk=user.pk)
    if (
        events_of(user)
        .filter(kind="account.password_reset_requested", at__gt=at - RESET_PAUSE)
        .exists()
    ):
        return False
    publish(kind="account.password_reset_requested", target=user, by=by, at=at)
    enqueue("accounts.mail_password_link", user_id=user.pk)
    return True
