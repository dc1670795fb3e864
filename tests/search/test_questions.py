"""The engine in PostgreSQL answers generated questions of each kind as a recount of the texts does."""

from datetime import UTC, datetime

import pytest

from apps.accounts.models import User
from apps.search.domain.engine.base import SearchScope
from apps.search.domain.engine.postgresql import PostgresEngine
from apps.search.domain.indexing.fill import index_kept_logs
from benchmarks.search_questions.answers import ask
from benchmarks.search_questions.questions import KINDS, Questions
from benchmarks.search_questions.recount import Recount
from benchmarks.search_questions.world import fill, read_texts

pytestmark = pytest.mark.django_db

LOGS, QUESTIONS, SEED = 60, 70, 20_261_130


def test_each_kind_of_question_has_the_hits_of_a_recount(shifter: User) -> None:
    fill(LOGS, seed=SEED, samples=[b"a line of a real log"])
    at = datetime.now(UTC)
    while index_kept_logs(batches=10, at=at):
        pass
    questions = Questions(Recount(read_texts(), at=at), seed=SEED)
    kinds = set()
    for number in range(1, QUESTIONS + 1):
        question = questions.question(number)
        if len(question.experiments) == 1:
            continue
        hits, _ = ask(PostgresEngine(), str(question.query), SearchScope(shifter, at))
        assert hits == [text.order for text in question.expected], str(question.query)
        kinds.add(question.kind)
    assert len(kinds) >= len(KINDS) - 2
