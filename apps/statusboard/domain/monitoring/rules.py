"""Rules that map alerts to services, and reprocessing of stored payloads."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from django.db import transaction

from apps.accounts.models import User
from apps.core.domain.background import enqueue
from apps.core.domain.events import publish
from apps.core.errors import InvalidFields
from apps.statusboard.domain.monitoring.payloads import parse_payload
from apps.statusboard.enums import PayloadState, State
from apps.statusboard.models import LabelRule, MonitoringSource, RawPayload, Service, UnmappedAlert
from apps.statusboard.permissions import require_board_role

#: How long parsed payloads and unmapped alerts are kept.
KEEP = timedelta(days=30)
#: How long failed payloads are kept.
KEEP_FAILED = timedelta(days=180)


@transaction.atomic
def add_rule(
    *,
    source: MonitoringSource,
    matchers: Mapping[str, str],
    service: Service | None,
    by: User,
    at: datetime,
    state: State | None = None,
) -> LabelRule:
    """Map alerts with these labels to a service, or ignore them if `service` is None.

    Stored payloads are reprocessed. Raises `NotAllowed`, `InvalidFields`.
    """
    require_board_role(by, "map alerts")
    if not matchers:
        raise InvalidFields(
            {
                "matchers": [
                    "Select at least one label. Without labels, the rule would match every alert."
                ]
            }
        )
    rule = LabelRule.objects.create(
        source=source, matchers=dict(matchers), service=service, state=state or ""
    )
    publish(
        kind="rule.added",
        target=source,
        by=by,
        at=at,
        new=service.slug if service else "",
        data={"matchers": dict(matchers), "state": state or ""},
    )
    for unmapped in UnmappedAlert.objects.filter(source=source):
        if all(unmapped.labels.get(name) == value for name, value in matchers.items()):
            unmapped.delete()
    enqueue("statusboard.replay", source_id=source.pk)
    return rule


def replay_payloads(*, source: MonitoringSource) -> int:
    """Reprocess stored payloads that failed or had unmapped alerts, oldest first.

    Return their number.
    """
    stored = RawPayload.objects.filter(source=source)
    again = stored.filter(unmapped__gt=0) | stored.filter(state=PayloadState.FAILED)
    pks = list(again.order_by("received_at", "pk").values_list("pk", flat=True))
    for pk in pks:
        parse_payload(payload_id=pk)
    return len(pks)


@transaction.atomic
def delete_old_payloads(*, at: datetime) -> int:
    """Delete old processed payloads and old unmapped alerts; return the number of payloads."""
    UnmappedAlert.objects.filter(last_seen_at__lt=at - KEEP).delete()
    old = RawPayload.objects.filter(state=PayloadState.PARSED, received_at__lt=at - KEEP)
    failed = RawPayload.objects.filter(state=PayloadState.FAILED, received_at__lt=at - KEEP_FAILED)
    return old.delete()[0] + failed.delete()[0]
