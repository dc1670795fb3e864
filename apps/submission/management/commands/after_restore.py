"""`manage.py after_restore`: say that the database was restored, and list what it does not know."""

from typing import Any

from django.core.management.base import BaseCommand
from django.utils import timezone

from apps.clusters.schedulers.base import SchedulerError
from apps.submission.domain.arrays.submissions import clusters_to_look_at
from apps.submission.domain.dispatch.restore import (
    is_on_hold_after_restore,
    newest_restore,
    note_restore,
    note_unknown_arrays,
    stop_after_restore,
)
from apps.submission.models import UnknownArray


class Command(BaseCommand):
    help = (
        "Put all production on hold after a restore of the database, and list jobs of requests "
        "that were submitted after the copy was made. May be repeated."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        at = timezone.now()
        # A new database is noticed by itself; a copy of the server is not told from the original.
        if not (stop_after_restore(at=at) or is_on_hold_after_restore(at=at)):
            note_restore(at=at)
        restored = newest_restore(at=at)
        if restored is None or restored.state_at is None:
            return
        self.stdout.write(
            f"the database is a copy of {restored.state_at:%Y-%m-%d %H:%M} UTC; production is on"
            " hold until somebody lifts the hold"
        )
        for cluster in clusters_to_look_at():
            try:
                note_unknown_arrays(cluster=cluster, at=at)
            except SchedulerError as error:
                self.stderr.write(f"{cluster}: {error}")
        unknown = UnknownArray.objects.filter(noticed_at__gte=restored.noticed_at)
        for array in unknown.select_related("request", "cluster").order_by("pk"):
            self.stdout.write(
                f"{array.request.key} stage {array.position + 1}: {array}, submitted"
                f" {array.submitted_at:%Y-%m-%d %H:%M} UTC"
            )
        self.stdout.write(f"{unknown.count()} arrays are not known to the portal")
