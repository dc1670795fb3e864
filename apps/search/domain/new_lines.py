"""Lines that no log had before: those of failed jobs at several sites first."""

from dataclasses import dataclass
from datetime import datetime

from django.db.models import F, QuerySet, Sum
from django.db.models.functions import Coalesce

from apps.accounts.models import User
from apps.search.models import LineTemplate

#: A page ranks this many of the newest templates.
MOST_RANKED = 5_000


@dataclass(frozen=True, slots=True)
class NewLine:
    """A template that was read for the first time, and how many jobs have it since."""

    template: LineTemplate
    failed: int
    good: int

    @property
    def number(self) -> str:
        """The hash of the template, as 16 hexadecimal digits."""
        return f"{self.template.hash % (1 << 64):016x}"


def new_lines(*, user: User, since: datetime, in_good_jobs: bool = False) -> list[NewLine]:
    """Return templates first read since then in failed jobs, the most telling first.

    Lines that completed jobs have too are left out, unless `in_good_jobs` is set.
    """
    rows = LineTemplate.objects.visible_to(user).filter(first_read_at__gte=since)
    lines = []
    for template in _counted(rows)[:MOST_RANKED]:
        if template.failed and (in_good_jobs or not template.good):
            lines.append(NewLine(template, template.failed, template.good))
    return sorted(
        lines,
        key=lambda line: (
            line.template.spread_at is None,
            not line.template.names_error,
            -line.failed,
            -line.template.pk,
        ),
    )


def _counted(rows: QuerySet[LineTemplate]) -> QuerySet[LineTemplate]:
    """Add how many failed and good jobs have each template."""
    return (
        rows.select_related("experiment", "first_site")
        .annotate(
            failed=Coalesce(Sum(F("templatetotals__failed")), 0),
            good=Coalesce(Sum(F("templatetotals__good")), 0),
        )
        .order_by("-first_read_at", "-pk")
    )
