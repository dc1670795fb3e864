"""What each engine of the search must do: the same as a search that reads every text."""

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.accounts.models import Experiment, User
from apps.archive.domain.search.words import LONGEST_WORD, split_words, words_in
from apps.archive.models import ArchivedJob
from apps.clusters.schedulers.base import JobState
from apps.jobs.models import Job
from apps.search.domain.engine import expressions
from apps.search.domain.engine.base import Cursor, Engine, SearchHit, SearchRefused, SearchScope
from apps.search.domain.query.clauses import (
    Expression,
    Field,
    Phrase,
    Query,
    Source,
    TextClause,
    Word,
    parse_moment,
)
from apps.search.domain.query.parser import parse
from tests.archive.conftest import index_words
from tests.factories import people
from tests.factories.archive import captured_job, store
from tests.search.kept_logs import job, keep_log, keep_logs
from tests.search.kept_logs import jobs as insert_jobs

AT = datetime(2026, 11, 24, 22, 12, tzinfo=UTC)
_VOCABULARY = [
    *("error", "Error", "failed", "cannot", "open", "/cvmfs/nova/lib/libA.so", "libB.so"),
    *("--mem=4G", "step=12", "x=a/b", "(core", "dumped)", "12:30:01", "é", "Ünder_score"),
    *("a.b.c", "<b>html</b>", "100%", "\\n", "'quoted'", "core-dump", "i/o"),
]
_STATES = (JobState.FAILED, JobState.TIMEOUT, JobState.COMPLETED)
SEED = 20_261_128


@dataclass(frozen=True)
class Text:
    """One text of a job, and what the fields of a query ask for."""

    hit: SearchHit
    text: str
    experiment: str
    state: str
    stage: str

    @cached_property
    def lines(self) -> list[str]:
        return self.text.split("\n")

    @cached_property
    def lower_lines(self) -> list[str]:
        return [line.lower() for line in self.lines]

    @cached_property
    def words(self) -> set[str]:
        words = set()
        for line in self.lines:
            words |= {word[:LONGEST_WORD] for word in words_in(line)}
        return words


def generated_line(chance: random.Random) -> str:
    words = [chance.choice(_VOCABULARY) for _ in range(chance.randint(0, 8))]
    return chance.choice([" ", "  ", "\t", " "]).join(words)


def generated_text(chance: random.Random, most_lines: int = 8) -> str:
    return "\n".join(generated_line(chance) for _ in range(chance.randint(1, most_lines)))


def generated_clause(chance: random.Random, texts: Sequence[str]) -> TextClause:
    """A part of one of the texts, so that something is there to find."""
    line = chance.choice(
        [line for line in chance.choice(texts).split("\n") if line.strip()] or ["x"]
    )
    negated = chance.random() < 0.2
    kind = chance.choice(["word", "start", "phrase", "gap", "expression"])
    if kind in ("word", "start") and (line_words := sorted(words_in(line))):
        word = chance.choice(line_words)
        if kind == "start":
            return Word(word[: chance.randint(1, len(word))], is_prefix=True, negated=negated)
        return Word(word, negated=negated)
    start = chance.randrange(len(line))
    piece = line[start : start + chance.randint(1, 20)]
    if kind == "gap" and len(piece) > 3:
        return Phrase((piece[:2], piece[-1]), negated)
    if kind == "expression" and piece.isascii():
        return Expression(re.escape(piece) + chance.choice(["", ".*r", "+"]), negated)
    return Phrase((piece if piece.strip() else "error",), negated)


def fulfils(text: Text, query: Query) -> bool:
    """Decide as a reader would, line by line."""
    for clause in query.texts:
        has = _has_word(text, clause) if isinstance(clause, Word) else _has_line(text, clause)
        if has is clause.negated:
            return False
    return all(_has_value(text, field, query) for field in Field if query.of(field))


def _has_line(text: Text, clause: Phrase | Expression) -> bool:
    if isinstance(clause, Phrase):
        phrase = ".*".join(re.escape(piece.lower()) for piece in clause.pieces)
        return any(re.search(phrase, line, re.DOTALL) for line in text.lower_lines)
    return any(re.search(clause.pattern, line, re.IGNORECASE | re.ASCII) for line in text.lines)


def _has_word(text: Text, word: Word) -> bool:
    if word.is_prefix:
        start = word.text.lower()[:LONGEST_WORD]
        return any(text_word.startswith(start) for text_word in text.words)
    return {chunk[:LONGEST_WORD] for chunk in split_words(word.text)} <= text.words


def _has_value(text: Text, field: Field, query: Query) -> bool:
    values = [clause.value for clause in query.of(field) if not clause.negated]
    excluded = [clause.value for clause in query.of(field) if clause.negated]
    if field is Field.SINCE:
        return text.hit.at >= parse_moment(values[0], at=AT)
    if field is Field.UNTIL:
        return text.hit.at < parse_moment(values[0], at=AT)
    if field is Field.IN:
        return text.hit.source in query.sources
    value = {
        Field.EXPERIMENT: text.experiment,
        Field.STATE: text.state,
        Field.STAGE: text.stage,
    }[field]
    return value not in excluded and (not values or value in values)


class World:
    """Jobs of two experiments with generated logs and scripts, over some months."""

    def __init__(self, engine: Engine, *, jobs: int = 60) -> None:
        self.chance = random.Random(SEED)
        self.texts: list[Text] = []
        experiments = [people.nova(), people.dune()]
        fields = {}
        texts = {}
        for number in range(1, jobs + 1):
            experiment = self.chance.choice(experiments)
            minutes = self.chance.choice([1, 30, 700, 9_000, 90_000]) * (1 + number % 60)
            fields[number] = {
                "at": AT - timedelta(minutes=minutes, seconds=number // 60),
                "experiment": experiment,
                "state": self.chance.choice(_STATES),
                "stage": self.chance.choice(["reco", "merge"]),
            }
            texts[number] = [generated_text(self.chance) for _ in range(self.chance.randint(1, 2))]
        kept = []
        for row in insert_jobs(fields):
            logs = texts[row.raw_id]
            kept.append((row, [log.encode() for log in logs]))
            self._add(SearchHit(row.ended_at, Source.LOG, row.pk), "\n".join(logs), row)
        self.logs = keep_logs(kept, engine=engine)
        self._archive(jobs // 3, experiments)

    def _archive(self, count: int, experiments: Sequence[Experiment]) -> None:
        scripts = [generated_text(self.chance) for _ in range(count // 2)]
        jobs = {}
        for number in range(1, min(count, 60) + 1):
            script = self.chance.choice(scripts)
            jobs[str(number)] = captured_job(
                number, minutes=-17_000 * number, script=script.encode()
            )
        store(*jobs.values())
        for row in ArchivedJob.objects.order_by("pk"):
            row.experiment = self.chance.choice(experiments)
            row.state = self.chance.choice(_STATES)
            row.stage = self.chance.choice(["reco", "merge"])
            row.save(update_fields=["experiment", "state", "stage"])
            script = jobs[row.job_id].script.decode()
            self._add(SearchHit(row.submitted_at, Source.SCRIPT, row.pk), script, row)
        index_words()

    def _add(self, hit: SearchHit, text: str, row: Job | ArchivedJob) -> None:
        experiment = row.experiment.key if row.experiment else ""
        self.texts.append(Text(hit, text, experiment, row.state, row.stage))

    def expected(
        self, query: Query, experiments: Sequence[str] = ("NOVA", "DUNE")
    ) -> list[SearchHit]:
        hits = []
        for text in self.texts:
            seen = text.experiment in experiments and text.hit.source in query.sources
            if seen and fulfils(text, query):
                hits.append(text.hit)
        return sorted(hits, key=lambda hit: hit.order, reverse=True)

    def queries(self, count: int) -> Iterator[Query]:
        chance = self.chance
        plain = [text.text for text in self.texts]
        fields = [
            *("in:log", "in:script", "state:failed", "-state:timeout", "stage:reco"),
            *("-stage:merge", "since:30d", "until:2026-11-01", "experiment:NOVA"),
            "-experiment:DUNE",
        ]
        for _ in range(count):
            clauses = [generated_clause(chance, plain) for _ in range(chance.randint(1, 3))]
            names = chance.sample(fields, chance.choice([0, 0, 1, 2]))
            yield Query((*clauses, *parse(" ".join(names)).clauses))


def found(
    engine: Engine, query: Query, user: User, *, size: int = 1_000, seconds: float = 60
) -> list[SearchHit]:
    """All hits, page by page."""
    hits: list[SearchHit] = []
    after: Cursor | None = None
    for _ in range(10_000):
        page = engine.search(query, SearchScope(user, AT), after=after, size=size, seconds=seconds)
        hits += page.rows
        if page.after is None:
            return hits
        after = Cursor.of(str(page.after))
        assert after == page.after
    raise AssertionError("the search never ends")


def _compare_hits(engine: Engine, world: World, user: User) -> None:
    with_hits = 0
    for query in world.queries(90):
        expected = world.expected(query)
        assert found(engine, query, user) == expected, str(query)
        with_hits += bool(expected)
    assert with_hits > 25


def _compare_pages(engine: Engine, world: World, user: User) -> None:
    """Compare pages of any size and time. Those of one hit take long if there are many."""
    compared = 0
    for query in world.queries(16):
        expected = world.expected(query)
        if not 3 <= len(expected) <= 25:
            continue
        for size, seconds in ((1, 60), (7, 60), (5, 0)):
            assert found(engine, query, user, size=size, seconds=seconds) == expected, str(query)
        compared += len(expected) > 7
    assert compared >= 2


def _compare_hits_of_members(engine: Engine, world: World) -> None:
    nova = people.person("nova-liaison", ("liaison", people.nova()))
    nobody = people.person("nobody")
    for query in world.queries(20):
        assert found(engine, query, nova) == world.expected(query, ["NOVA"]), str(query)
        assert found(engine, query, nobody) == []


class EngineContract:
    """Derive, with a fixture `engine`."""

    def test_hits_and_pages_are_those_of_a_search_that_reads_every_text(
        self, engine: Engine, shifter: User, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """And a member finds those of the experiment, and nothing else."""
        # Of a busy machine, too, the answers count and not the seconds.
        monkeypatch.setattr(expressions, "BUDGET_SECONDS", 60.0)
        world = World(engine)
        _compare_hits(engine, world, shifter)
        _compare_pages(engine, world, shifter)
        _compare_hits_of_members(engine, world)

    def test_a_log_that_is_kept_again_is_found_by_its_new_words_alone(
        self, engine: Engine, shifter: User
    ) -> None:
        row = job(1, at=AT)
        keep_log(row, b"old line", engine=engine)
        assert len(found(engine, parse("old"), shifter)) == 1
        keep_log(row, b"new line", engine=engine)
        assert found(engine, parse("old"), shifter) == []
        assert len(found(engine, parse("new"), shifter)) == 1
        keep_log(row, engine=engine)
        assert found(engine, parse("new"), shifter) == []

    def test_logs_with_more_words_than_the_index_holds_are_found(
        self, engine: Engine, shifter: User
    ) -> None:
        words = [f"w{number:05d}" for number in range(9_000)]
        keep_log(
            job(1, at=AT), " ".join(words).encode(), " ".join(words).upper().encode(), engine=engine
        )
        long_words = " ".join(f"{'x' * 120}{number}/{'y' * 120}" for number in range(230))
        keep_log(
            job(2, at=AT), long_words.encode(), long_words.replace("x", "z").encode(), engine=engine
        )
        assert len(found(engine, parse("w00000 w08999"), shifter)) == 1
        assert len(found(engine, parse("w09000"), shifter)) == 0
        assert len(found(engine, parse(f"{'z' * 120}229*"), shifter)) == 1

    @pytest.mark.parametrize(
        "text", ['"ΠΡΟΣ"', '"φάλμα ΠΡΟΣ"', '"σησ 10 μ"', "προσβασησ", "ΠΡΟΣ*", "ΜS", '"10 µs"']
    )
    def test_letters_with_two_lower_cases_are_the_same_letter(
        self, engine: Engine, shifter: User, text: str
    ) -> None:
        """As `grep -iF` has it: the sigma at the end of a word, and the micro sign."""
        keep_log(job(1, at=AT), "ΣΦΆΛΜΑ ΠΡΟΣΒΑΣΗΣ 10 µs".encode(), engine=engine)
        keep_log(job(2, at=AT), b"another log", engine=engine)
        assert [hit.key for hit in found(engine, parse(text), shifter)] == [
            Job.objects.get(job_id="1").pk
        ]

    def test_of_a_word_and_of_its_start_the_first_128_letters_count(
        self, engine: Engine, shifter: User
    ) -> None:
        keep_log(job(1, at=AT), b"x" * 200, engine=engine)
        keep_log(job(2, at=AT), b"x" * 127, engine=engine)
        for text in ("x" * 140 + "*", "x" * 140, "x" * 200):
            (hit,) = found(engine, parse(text), shifter)
            assert Job.objects.get(pk=hit.key).job_id == "1"

    def test_a_page_reads_few_texts_more_than_it_has_hits(
        self, engine: Engine, shifter: User
    ) -> None:
        fields = {number: {"at": AT - timedelta(minutes=number)} for number in range(1, 131)}
        kept = []
        for row in insert_jobs(fields):
            kept.append((row, [b"error" if row.raw_id > 5 else b"errors"]))
        keep_logs(kept, engine=engine)
        with CaptureQueriesContext(connection) as captured:
            page = engine.search(parse("error"), SearchScope(shifter, AT), size=100, seconds=60)
        assert len(page.rows) == 100
        reads = [row["sql"] for row in captured if "compressed" in row["sql"]]
        assert len(reads) <= 3

    def test_an_expression_that_is_none_is_refused_with_its_fault(
        self, engine: Engine, shifter: User
    ) -> None:
        keep_log(job(1, at=AT), b"x", engine=engine)
        for text in ("/(/", "/x*/", "/(?=x)/"):
            with pytest.raises(SearchRefused, match=re.escape(text)):
                found(engine, parse(text), shifter)
