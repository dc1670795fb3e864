"""Former keys that still count, and what needs them."""

from collections.abc import Iterator
from datetime import datetime

from django.conf import settings

from apps.core.domain.secrets.signing_keys import key_id, signing_keys
from apps.notifications.models import Webhook
from apps.portal.pages.doctor.findings import DoctorFinding, ok, problem, warning

_RENEW = (
    "Press New secret beside each, in the settings of notifications, and give it to its receiver."
)


def check_keys(_at: datetime) -> Iterator[DoctorFinding]:
    """Check that no webhook depends on a `SECRET_KEY` that is gone, or about to go."""
    hooks = Webhook.objects.filter(enabled=True)
    ids = [key_id(key) for key in signing_keys()]
    lost = hooks.exclude(key_id__in=ids).count()
    if lost:
        yield problem("keys", f"webhooks whose secret their receivers lack: {lost}", _RENEW)
    if not settings.SECRET_KEY_FALLBACKS:
        if not lost:
            yield ok("keys", "no former key is in use")
        return
    former = hooks.filter(key_id__in=ids[1:]).count()
    if former:
        yield warning("keys", f"webhooks with a secret of a former SECRET_KEY: {former}", _RENEW)
    else:
        yield ok(
            "keys",
            "no webhook needs SECRET_KEY_FALLBACKS; sessions may, for two weeks after the change",
        )
