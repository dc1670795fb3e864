"""Capture in the process of a test, into its database."""

from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connections

from apps.archive.domain import intake
from apps.archive.domain.capture_hosts import add_token_beside_portal, host_of, receive_batch
from apps.core.domain.secrets.masking import Masker, MaskPattern
from apps.jobs.domain.collection.masking_rules import current_rules
from capture.capture import Capture
from capture.handover import HandOver
from capture.journal.journal import Journal, JournaledBatch
from capture.main import open_spool
from capture.masking_rules import KeptRules
from capture.portal import JournalOutdated
from capture.wire.batches import unpack
from capture.wire.report import CaptureReport


class DirectPortal:
    """Receives batches as the API does, without HTTP, from a host that is trusted."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        at = datetime.now(UTC)
        self._host = host_of(
            add_token_beside_portal(name="here", cluster=cluster, by="test", at=at)
        )

    def take(self, batch: JournaledBatch) -> None:
        assert self._host is not None
        try:
            receive_batch(
                host=self._host,
                cluster=self._cluster,
                journal=UUID(batch.journal),
                sequence=batch.last,
                jobs=unpack([batch.content]),
                content=batch.content,
                at=datetime.now(UTC),
            )
        except intake.JournalOutdated as error:
            raise JournalOutdated(str(error)) from error

    def report(self, detail: Mapping[str, Any]) -> None:
        """Nobody reads it."""

    def masking_rules(self) -> list[MaskPattern]:
        return list(current_rules())

    def close(self) -> None:
        connections.close_all()


def capture_once(*, cluster: str, scheduler: str, spool: Path, journal: Path) -> CaptureReport:
    """Capture what is in the spool, for workers to archive. The database must be a real one."""

    def make_masker(rules):
        key = settings.MASKING_KEY.encode()
        return Masker(names=settings.CAPTURE_MASK_NAMES, key=key, rules=rules)

    portal = DirectPortal(cluster)
    with closing(Journal(journal / cluster)) as opened:
        capture = Capture(
            cluster=cluster,
            scheduler=scheduler,
            spool=open_spool(cluster, scheduler, spool),
            hand_over=HandOver(opened, portal, KeptRules(opened.directory)),
            make_masker=make_masker,
            clock=lambda: datetime.now(UTC),
        )
        capture.run_once()
        report = capture.report()
    assert (report.behind, report.refused, report.last_error) == (0, 0, "")
    return report
