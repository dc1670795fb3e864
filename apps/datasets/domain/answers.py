"""What the catalogues answered about datasets, as far as a user may see it. Nothing is asked."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from django.db.models import QuerySet

from apps.accounts.models import Principal
from apps.accounts.permissions import scope_of
from apps.datasets.domain.steps import (
    concrete_names,
    names_that_fit,
    stages_of_scans,
)
from apps.datasets.models import Catalogue, KnownDataset
from apps.production.enums import UNCLAIMED
from apps.production.models import Stage


@dataclass(frozen=True)
class StoredAnswers:
    """The answers of the catalogues about a dataset, by name of the catalogue.

    Rows without a time of an answer wait for their first one.
    """

    rows: list[KnownDataset] = field(default_factory=list)

    @property
    def newest(self) -> KnownDataset | None:
        """The newest answer that the dataset exists; if there is none, the newest answer at all."""
        answered = [answer for answer in self.rows if answer.answered_at is not None]
        existing = [answer for answer in answered if answer.exists]
        return max(existing or answered, key=_answered_at, default=None)


def _answered_at(answer: KnownDataset) -> float:
    return answer.answered_at.timestamp() if answer.answered_at else 0.0


def answers_for(names: Collection[str], user: Principal) -> Mapping[str, StoredAnswers]:
    """Return the stored answers about datasets by name, in at most three queries.

    A dataset has no rows if only requests write it that the user cannot see, as if no catalogue had
    been asked: the user must not learn whether it exists.
    """
    shown = set(names) - _of_others(names, user)
    answers: dict[str, StoredAnswers] = {}
    for name in names:
        answers[name] = StoredAnswers()
    known = KnownDataset.objects.filter(name__in=sorted(shown), catalogue__active=True)
    for answer in known.select_related("catalogue").order_by("catalogue__name"):
        answers[answer.name].rows.append(answer)
    return answers


def _of_others(names: Collection[str], user: Principal) -> set[str]:
    """Return the datasets that only experiments write whose requests the user cannot see."""
    scope = scope_of(user)
    if scope.sees_all or not names:
        return set()
    experiment_pks: dict[str, set[int]] = {}
    for name in names:
        experiment_pks[name] = set()
    stages = Stage.objects.exclude(request__state__in=UNCLAIMED).order_by()

    writing = stages.filter(output_dataset__in=names).exclude(output_dataset="")
    rows = writing.values_list("output_dataset", "request__experiment").distinct()
    for name, experiment_pk in rows:
        experiment_pks[name].add(experiment_pk)
    # What an own request writes is shown in any case.
    undecided = [name for name, pks in experiment_pks.items() if not pks & scope.experiment_keys]
    for name, experiment_pk in _written_by_scans(concrete_names(undecided), stages):
        experiment_pks[name].add(experiment_pk)

    others = set()
    for name, writer_pks in experiment_pks.items():
        if writer_pks and not writer_pks & scope.experiment_keys:
            others.add(name)
    return others


def _written_by_scans(names: Sequence[str], stages: QuerySet[Stage]) -> list[tuple[str, int]]:
    """Return the datasets that scans write, each with the primary key of an experiment."""
    written: list[tuple[str, int]] = []
    if not names:
        return written
    columns = ("output_dataset", "request__scan", "request__experiment")
    scans = stages_of_scans(stages, ["output_dataset"], names)
    for template, scan, experiment_pk in scans.values_list(*columns):
        for name in names_that_fit(names, template, scan):
            written.append((name, experiment_pk))
    return written


def by_catalogue(answers: StoredAnswers) -> list[tuple[Catalogue, KnownDataset | None]]:
    """Return the active catalogues, each with what it answered about the dataset."""
    known: dict[int, KnownDataset] = {}
    for answer in answers.rows:
        known[answer.catalogue_id] = answer
    listed = []
    for catalogue in Catalogue.objects.filter(active=True):
        listed.append((catalogue, known.get(catalogue.pk)))
    return listed
