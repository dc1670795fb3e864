"""Masking rules that admins add to those in the settings."""

from datetime import datetime

from django.conf import settings
from django.db import transaction

from apps.accounts.models import Principal
from apps.core.domain.events import publish
from apps.core.domain.secrets.masking import Masker, MaskPattern
from apps.jobs.models import MaskingRule


def current_rules() -> list[MaskPattern]:
    """Return the enabled rules."""
    return [rule.as_rule() for rule in MaskingRule.objects.filter(enabled=True)]


def current_masker() -> Masker:
    """Return a masker with the current settings and the current rules of the back office."""
    return masker_of(names=settings.CAPTURE_MASK_NAMES)


def masker_of(*, names: str) -> Masker:
    """Return a masker of these names of variables, with the current rules."""
    return Masker(names=names, key=settings.MASKING_KEY.encode(), rules=current_rules())


def masking_key_id() -> str:
    """Return the id of the portal's key, which captures that mask by the same key report."""
    return Masker(names="", key=settings.MASKING_KEY.encode()).key_id


@transaction.atomic
def save_masking_rule(*, rule: MaskingRule, by: Principal, at: datetime) -> None:
    """Store a new or changed rule; captures fetch it with their next heartbeat.

    Raises `ValidationError`.
    """
    rule.full_clean()
    rule.save()
    publish(
        kind="masking_rule.saved",
        target=rule,
        by=by,
        at=at,
        new="enabled" if rule.enabled else "disabled",
        data={"applies_to": rule.applies_to, "pattern": rule.pattern},
    )


@transaction.atomic
def delete_masking_rule(*, rule: MaskingRule, by: Principal, at: datetime) -> None:
    """Delete a rule; masked values stay masked."""
    publish(kind="masking_rule.deleted", target=rule, by=by, at=at, data={"pattern": rule.pattern})
    rule.delete()
