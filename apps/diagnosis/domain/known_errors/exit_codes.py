"""Exit codes in the database: load the shipped ones, and explain numbers of jobs and statistics."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Exists, OuterRef, Q

from apps.accounts.models import Experiment, User
from apps.diagnosis.engine.base import ExitCode, JobFacts
from apps.diagnosis.engine.evidence.exit_codes import meanings_of, numbers_of, program_ran, shipped
from apps.diagnosis.enums import Category, CodeKind, CodeScope
from apps.diagnosis.models import ExitCodeMeaning
from apps.jobs.domain.statistics.questions import MEASURES, AnswerRow, Question, job_list_query
from apps.jobs.enums import NOT_COMPLETED

#: Dimensions of the statistics whose values are exit codes or signals.
KIND_OF = {"exit_code": CodeKind.EXIT, "signal": CodeKind.SIGNAL}
DAYS = 30
MOST_CODES = 500


@transaction.atomic
def load_shipped_codes(*, codes: Iterable[ExitCode] | None = None) -> int:
    """Load the shipped exit codes; return the number of rows added or changed.

    A row that the site has edited stays as it is. A row no longer shipped is disabled, unless the
    site has edited it.
    """
    rows = {
        (meaning.kind, meaning.scope, meaning.name, meaning.number): meaning
        for meaning in ExitCodeMeaning.objects.all()
    }
    new = []
    changed = []
    for code in shipped() if codes is None else codes:
        values = _values(code)
        meaning = rows.pop(code.key, None)
        if meaning is None:
            new.append(ExitCodeMeaning(**values, shipped=values))
        elif meaning.shipped != values:
            if meaning.shipped is not None and not _is_edited(meaning):
                for name, value in values.items():
                    setattr(meaning, name, value)
            meaning.shipped = values
            changed.append(meaning)
    for meaning in rows.values():
        if meaning.shipped and meaning.enabled and not _is_edited(meaning):
            meaning.enabled = False
            changed.append(meaning)
    ExitCodeMeaning.objects.bulk_create(new)
    ExitCodeMeaning.objects.bulk_update(
        changed, ["title", "help", "category", "certain", "source", "enabled", "shipped"]
    )
    return len(new) + len(changed)


def _values(code: ExitCode) -> dict[str, Any]:
    values = {}
    for name, value in asdict(code).items():
        values[name] = value if isinstance(value, int) else str(value)
    return values


def _is_edited(meaning: ExitCodeMeaning) -> bool:
    return any(getattr(meaning, name) != value for name, value in (meaning.shipped or {}).items())


def codes_of(numbers: Iterable[tuple[CodeKind, int]]) -> tuple[ExitCode, ...]:
    """Return all meanings of these numbers, in one query; none without numbers.

    Meanings of experiments that the portal does not know are left out.
    """
    any_number = Q()
    for kind, number in numbers:
        any_number |= Q(kind=kind, number=number)
    if not any_number:
        return ()
    ours = Exists(Experiment.objects.filter(key__iexact=OuterRef("name")))
    meanings = ExitCodeMeaning.objects.filter(
        any_number, ~Q(scope=CodeScope.EXPERIMENT) | Q(ours), enabled=True
    )
    codes = []
    for meaning in meanings:
        codes.append(
            ExitCode(
                kind=CodeKind(meaning.kind),
                scope=CodeScope(meaning.scope),
                name=meaning.name,
                number=meaning.number,
                title=meaning.title,
                help=meaning.help,
                category=Category(meaning.category),
                certain=meaning.certain,
                source=meaning.source,
            )
        )
    return tuple(codes)


@dataclass(frozen=True, slots=True)
class ExitCodeExplanation:
    """The meanings of the number that a job ended with: the most specific one, and the others."""

    meaning: ExitCode
    others: tuple[ExitCode, ...] = ()


def explanation_of(facts: JobFacts, *, read_text: Callable[[], str]) -> ExitCodeExplanation | None:
    """Explain how a job ended; None if no meaning of its numbers is known.

    The meaning in a program counts only if the job ran the program: `read_text` returns the job's
    script and log, which are searched for it.
    """
    codes = facts.exit_codes
    if codes is None:
        codes = codes_of(numbers_of(facts))
    meanings = meanings_of(facts, codes)
    if any(code.scope is CodeScope.PROGRAM for code in meanings):
        text = read_text()
        meanings = [
            code
            for code in meanings
            if code.scope is not CodeScope.PROGRAM or program_ran(code.name, text)
        ]
    if not meanings:
        return None
    return ExitCodeExplanation(meanings[0], tuple(meanings[1:]))


def words_of(values: Mapping[str, Iterable[str]]) -> dict[tuple[str, str], str]:
    """Return the meanings of values of the statistics, by dimension and value.

    The meaning by convention comes first; otherwise, if several scopes use the number, each is
    named. Meanings in a program are left out, since the jobs of a row may have run other programs.
    """
    numbers: list[tuple[CodeKind, int]] = []
    for dimension, kind in KIND_OF.items():
        for text in values.get(dimension, ()):
            if _is_code(text):
                numbers.append((kind, int(text)))

    dimensions = {kind: dimension for dimension, kind in KIND_OF.items()}
    meanings: dict[tuple[str, str], str] = {}
    for (kind, number), codes in _by_number(codes_of(numbers)).items():
        if meaning := _text(codes):
            meanings[dimensions[kind], str(number)] = meaning
    return meanings


def _is_code(text: str) -> bool:
    return text.removeprefix("-").isdecimal() and text.isascii() and len(text) < 10 and text != "0"


def _by_number(codes: Iterable[ExitCode]) -> dict[tuple[CodeKind, int], list[ExitCode]]:
    by_number: dict[tuple[CodeKind, int], list[ExitCode]] = {}
    for code in codes:
        by_number.setdefault((code.kind, code.number), []).append(code)
    return by_number


def _text(codes: Sequence[ExitCode]) -> str:
    for code in codes:
        if code.scope is CodeScope.CONVENTION and code.category is not Category.UNKNOWN:
            return code.title
    for_any_program = [code for code in codes if code.scope is not CodeScope.PROGRAM]
    named = [f"{code.name}: {code.title}" if code.name else code.title for code in for_any_program]
    return "; ".join(named[:2]) + (" …" if len(named) > 2 else "")


@dataclass(frozen=True, slots=True)
class CodeFigures:
    """The jobs of 30 days that failed with one number; `query` is the query of their job list."""

    kind: CodeKind
    number: int
    row: AnswerRow
    query: str
    codes: tuple[ExitCode, ...] = ()


def failures_by_code(user: User, *, at: datetime) -> list[CodeFigures]:
    """Return the failures of 30 days by exit code and by signal, most frequent first.

    The counts come from the statistics.
    """
    from apps.jobs.domain.statistics.explorer import Explorer

    until = at.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    filters = {"state": (NOT_COMPLETED,)}
    failures: list[CodeFigures] = []
    for dimension, kind in KIND_OF.items():
        question = Question(
            MEASURES["jobs"], (dimension,), until - timedelta(days=DAYS), until, filters
        )
        for row in Explorer(user).answer(question, limit=MOST_CODES).rows:
            text = row.key[dimension]
            if text.removeprefix("-").isdecimal() and text != "0":
                failures.append(CodeFigures(kind, int(text), row, job_list_query(question, row)))

    codes = _by_number(codes_of((failure.kind, failure.number) for failure in failures))
    figures = []
    for failure in failures:
        codes_of_number = codes.get((failure.kind, failure.number), ())
        figures.append(replace(failure, codes=tuple(codes_of_number)))
    return sorted(figures, key=lambda code: (-code.row.jobs, code.kind, code.number))
