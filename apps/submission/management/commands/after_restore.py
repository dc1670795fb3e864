"""`manage.py after_restore`: note that the database was restored, and list unknown jobs."""

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
        # The portal notices a new database, but cannot distinguish a copy of the server.
        if not (stop_after_restore(at=at) or is_on_hold_after_restore(at=at)):
            note_restore(at=at)
        restore = newest_restore(at=at)
        if restore is None or restore.state_at is None:
            return
        self.stdout.write(
            f"the database is a copy of {restore.state_at:%Y-%m-%d %H:%M} UTC; production is on"
            " hold until somebody lifts the hold"
        )
        for cluster in clusters_to_look_at():
            try:
                note_unknown_arrays(cluster=cluster, at=at)
            except SchedulerError as error:
                self.stderr.write(f"{cluster}: {error}")
        unknown = UnknownArray.objects.filter(noticed_at__gte=restore.noticed_at)
        for array in unknown.select_related("request", "cluster").order_by("pk"):
            self.stdout.write(
                f"{array.request.key} stage {array.position + 1}: {array}, submitted"
                f" {array.submitted_at:%Y-%m-%d %H:%M} UTC"
            )
        self.stdout.write(f"{unknown.count()} arrays are not known to the portal")
