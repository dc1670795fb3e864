"""Rules that lead alerts to services, and reading again what came before they were made."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from django.db import transaction

from apps.accounts.models import User
from apps.core.domain.events import publish
from apps.core.domain.queue import enqueue
from apps.core.errors import InvalidFields, NotAllowed
from apps.statusboard.domain.payloads import parse_payload
from apps.statusboard.enums import PayloadState, State
from apps.statusboard.models import LabelRule, MonitoringSource, RawPayload, Service, UnmappedAlert
from apps.statusboard.permissions import may_run_board

#: How long payloads are kept after they were parsed, and alerts of no service after they were heard last.
KEEP = timedelta(days=30)
#: How long payloads are kept that could not be read.
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
    """Lead alerts with these labels to a service, or (None) to none; what was heard before is read again.

    Raises `NotAllowed`, `InvalidFields`.
    """
    if not may_run_board(by):
        raise NotAllowed("Alerts are mapped by shifters and approvers of the OPG.")
    if not matchers:
        raise InvalidFields({"matchers": ["Name at least one label, or every alert would be led there."]})
    rule = LabelRule.objects.create(source=source, matchers=dict(matchers), service=service, state=state or "")
    publish(
        kind="rule.added",
        target=source,
        by=by,
        at=at,
        new=service.slug if service else "",
        data={"matchers": dict(matchers), "state": state or ""},
    )
    for row in UnmappedAlert.objects.filter(source=source):
        if all(row.labels.get(name) == value for name, value in matchers.items()):
            row.delete()
    enqueue("apps.statusboard.tasks.replay", source_id=source.pk)
    return rule


def replay_payloads(*, source: MonitoringSource) -> int:
    """Read again every stored payload with alerts of no service, or that failed, oldest first; return how many."""
    stored = RawPayload.objects.filter(source=source)
    again = stored.filter(unmapped__gt=0) | stored.filter(state=PayloadState.FAILED)
    pks = list(again.order_by("received_at", "pk").values_list("pk", flat=True))
    for pk in pks:
        parse_payload(payload_id=pk, again=True)
    return len(pks)


@transaction.atomic
def drop_old_payloads(*, at: datetime) -> int:
    """Delete what was heard long ago: payloads, but those still waiting, and alerts that led nowhere."""
    UnmappedAlert.objects.filter(last_seen_at__lt=at - KEEP).delete()
    old = RawPayload.objects.filter(state=PayloadState.PARSED, received_at__lt=at - KEEP)
    failed = RawPayload.objects.filter(state=PayloadState.FAILED, received_at__lt=at - KEEP_FAILED)
    return old.delete()[0] + failed.delete()[0]
