"""The catalogue in force, compiled once per version in workers.

Pages search with it in processes that can be killed.
"""

import logging
from collections.abc import Iterable, Mapping

from apps.core.bounded_pool import POOL, BudgetExceeded
from apps.diagnosis.engine.base import Block, Hit, JobFacts, LogClassifier, Pattern
from apps.diagnosis.engine.evidence.catalogue import (
    KnownErrorCatalogue,
    KnownErrorFileError,
    built_in,
    catalogue_hits,
)
from apps.diagnosis.engine.registry import classifiers
from apps.diagnosis.enums import Category, JobAdvice, Role
from apps.diagnosis.models import CatalogueState, KnownError

log = logging.getLogger(__name__)

#: Compiling the catalogue in a new process takes 0.3 s of this.
PAGE_SECONDS = 4.0
_compiled: KnownErrorCatalogue | None = None
_patterns: tuple[str, tuple[Pattern, ...]] = ("", ())


def current_catalogue() -> KnownErrorCatalogue:
    """Return the catalogue in force, with one query if its version is compiled already.

    Before the shipped rows are first loaded, this is the shipped catalogue. If the rows do not
    compile, it is the last one that did, or the shipped one.
    """
    global _compiled  # noqa: PLW0603 -- one compiled catalogue per process
    number = CatalogueState.objects.values_list("number", flat=True).first()
    if number is None:
        return built_in()
    if _compiled is None or _compiled.version != str(number):
        try:
            _compiled = KnownErrorCatalogue(
                patterns_of(KnownError.objects.filter(enabled=True)), str(number)
            )
        except KnownErrorFileError:
            log.exception("known errors of version %s cannot be compiled", number)
            return _compiled or built_in()
    return _compiled


def known_errors_in(facts: JobFacts, block: Block) -> tuple[Hit, ...]:
    """Return the hits of the catalogue in force in the part of a log that a page shows.

    Return none if they take too long to find.
    """
    try:
        return POOL.call(catalogue_hits, _current_patterns(), facts, block, seconds=PAGE_SECONDS)
    except BudgetExceeded as error:
        log.warning("known errors are missing on the page of a log: %s", error)
        return ()


def _current_patterns() -> tuple[Pattern, ...]:
    """Return the patterns in force, read again only if the version has changed."""
    global _patterns  # noqa: PLW0603 -- one version per process
    number = CatalogueState.objects.values_list("number", flat=True).first()
    if number is None:
        return built_in().patterns
    if _patterns[0] != str(number):
        _patterns = (str(number), tuple(patterns_of(KnownError.objects.filter(enabled=True))))
    return _patterns[1]


def current_classifiers() -> Mapping[str, LogClassifier]:
    """Return all log classifiers, with the catalogue in force."""
    return {**classifiers(), KnownErrorCatalogue.name: current_catalogue()}


def patterns_of(known_errors: Iterable[KnownError]) -> list[Pattern]:
    """Return known errors as patterns of the engine."""
    keys = dict(KnownError.objects.exclude(experiment=None).values_list("pk", "experiment__key"))
    patterns = []
    for known_error in known_errors:
        patterns.append(
            Pattern(
                id=known_error.id,
                title=known_error.title,
                category=Category(known_error.category),
                service=known_error.service,
                regex=known_error.regex,
                advice=JobAdvice(known_error.advice),
                role=Role(known_error.role),
                where=known_error.where,
                example=known_error.example,
                instructions=known_error.instructions,
                passive=known_error.passive,
                experiment=keys.get(known_error.id, ""),
            )
        )
    return patterns
