"""Lines that no log had before, with lines of failed jobs at several sites first."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet, Sum

from apps.accounts.models import User
from apps.core.domain.events import publish
from apps.production.enums import PORTAL
from apps.search.models import LineTemplate, TemplateTotals

#: A page ranks this many of the newest templates.
MOST_RANKED = 5_000
#: Minimum number of failed jobs with a line to announce it; no completed job may have it.
LEAST_JOBS = 3
ANNOUNCED_WITHIN = timedelta(days=1)
#: Completed jobs of the same time may have the line too: their logs are read a little later.
SETTLED = timedelta(minutes=30)
#: Lines of an experiment are not announced until its logs have been read for this long: before,
#: every line is new.
LEARNT_WITHIN = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class NewLine:
    """A line that was read for the first time, and how many jobs have it since.

    `templates` are its rows, one for each experiment, the first read first.
    """

    templates: tuple[LineTemplate, ...]
    failed: int
    completed: int

    @property
    def template(self) -> LineTemplate:
        return self.templates[0]

    @property
    def number(self) -> str:
        """The hash of the template, as 16 hexadecimal digits."""
        return self.template.number

    @property
    def experiments(self) -> list[str]:
        """The keys of the experiments whose jobs wrote it."""
        return sorted(template.experiment.key for template in self.templates if template.experiment)

    @property
    def spread_at(self) -> datetime | None:
        """When a job of a second site wrote it, within an hour after the first."""
        moments = [template.spread_at for template in self.templates if template.spread_at]
        return min(moments, default=None)


def new_lines(*, user: User, since: datetime, in_completed_jobs: bool = False) -> list[NewLine]:
    """Return lines first read since then in failed jobs, the most telling first.

    Lines that completed jobs have too are left out, unless `in_completed_jobs` is set.
    """
    templates = LineTemplate.objects.visible_to(user).filter(first_seen_at__gte=since)
    newest = templates.select_related("experiment", "first_site").order_by("-first_seen_at", "-pk")
    lines = []
    for line in _lines_of(newest[:MOST_RANKED]):
        if line.failed and (in_completed_jobs or not line.completed):
            lines.append(line)
    return sorted(
        lines,
        key=lambda line: (
            line.spread_at is None,
            not line.template.names_error,
            -line.failed,
            -line.template.pk,
        ),
    )


def _lines_of(templates: QuerySet[LineTemplate] | Iterable[LineTemplate]) -> list[NewLine]:
    """Return the lines with these templates, counted."""
    by_hash: dict[int, list[LineTemplate]] = defaultdict(list)
    keys = []
    for template in templates:
        by_hash[template.hash].append(template)
        keys.append(template.pk)
    totals = TemplateTotals.objects.filter(template__in=keys).order_by()
    sums = totals.values_list("template").annotate(Sum("failed"), Sum("good"))
    jobs = {template_pk: (failed, completed) for template_pk, failed, completed in sums}
    lines = []
    for same in by_hash.values():
        counts = [jobs.get(template.pk, (0, 0)) for template in same]
        lines.append(
            NewLine(
                tuple(sorted(same, key=lambda template: (template.first_seen_at, template.pk))),
                failed=sum(failed for failed, _ in counts),
                completed=sum(completed for _, completed in counts),
            )
        )
    return lines


@transaction.atomic
def announce_spread(*, at: datetime) -> int:
    """Publish one event for each experiment with new lines of failed jobs at two sites.

    Its target is the line with most jobs. A line is announced once; return the number of lines.
    """
    rows = LineTemplate.objects.filter(
        spread_at__gte=at - ANNOUNCED_WITHIN,
        spread_at__lte=at - SETTLED,
        announced_at=None,
        names_error=True,
    )
    known = LineTemplate.objects.filter(
        first_seen_at__lte=at - LEARNT_WITHIN, experiment=OuterRef("experiment")
    )
    locked = rows.filter(Exists(known)).select_for_update(no_key=True, of=("self",)).order_by("pk")
    by_experiment: dict[int | None, list[LineTemplate]] = defaultdict(list)
    for template in locked[:MOST_RANKED]:
        by_experiment[template.experiment_id].append(template)
    announced: list[int] = []
    for templates in by_experiment.values():
        counted = _lines_of(templates)
        lines = [line for line in counted if line.failed >= LEAST_JOBS and not line.completed]
        if not lines:
            continue
        first = max(lines, key=lambda line: (line.failed, -line.template.pk))
        publish(
            kind="line.spread",
            target=first.template,
            by=PORTAL,
            at=at,
            data={"lines": len(lines), "jobs": first.failed},
        )
        announced += [line.template.pk for line in lines]
    LineTemplate.objects.filter(pk__in=announced).update(announced_at=at)
    return len(announced)
