"""The compiled catalogue of this process: one per version, compiled again when the version has changed."""

import logging
from collections.abc import Iterable, Mapping

from apps.diagnosis.engine.base import LogClassifier, Pattern
from apps.diagnosis.engine.catalogue import Catalogue, CatalogueError, built_in
from apps.diagnosis.engine.registry import classifiers
from apps.diagnosis.enums import Advice, Category, Role
from apps.diagnosis.models import CatalogueState, KnownError

log = logging.getLogger(__name__)

_compiled: Catalogue | None = None


def current() -> Catalogue:
    """Return the catalogue in force: one query if its version is the one compiled last.

    Before the first load of the shipped rows, and if the rows do not compile, it is the shipped one or the last.
    """
    global _compiled  # noqa: PLW0603 -- one compiled catalogue per process
    number = CatalogueState.objects.values_list("number", flat=True).first()
    if number is None:
        return built_in()
    if _compiled is None or _compiled.version != str(number):
        try:
            _compiled = Catalogue(patterns_of(KnownError.objects.filter(enabled=True)), str(number))
        except CatalogueError:
            log.exception("known errors of version %s cannot be compiled", number)
            return _compiled or built_in()
    return _compiled


def current_classifiers() -> Mapping[str, LogClassifier]:
    """Return all log classifiers, with the catalogue in force."""
    return {**classifiers(), Catalogue.name: current()}


def patterns_of(rows: Iterable[KnownError]) -> list[Pattern]:
    """Return known errors as the engine's patterns, by ID."""
    keys = dict(KnownError.objects.exclude(experiment=None).values_list("pk", "experiment__key"))
    return [
        Pattern(
            id=row.id,
            title=row.title,
            category=Category(row.category),
            service=row.service,
            regex=row.regex,
            advice=Advice(row.advice),
            role=Role(row.role),
            where=row.where,
            example=row.example,
            instructions=row.instructions,
            passive=row.passive,
            experiment=keys.get(row.id, ""),
        )
        for row in rows
    ]
