"""The search in PostgreSQL fulfils the contract, and finds phrases as grep does."""

import random
import subprocess
from pathlib import Path

import pytest

from apps.accounts.models import User
from apps.search.domain.engine.postgresql import PostgresEngine
from apps.search.domain.query.clauses import Phrase, Query
from tests.search.engine_contract import AT, SEED, EngineContract, found, generated_text
from tests.search.kept_logs import jobs, keep_logs

pytestmark = pytest.mark.django_db


class TestPostgresEngine(EngineContract):
    @pytest.fixture
    def engine(self) -> PostgresEngine:
        return PostgresEngine()


def test_phrases_are_found_where_grep_finds_them(tmp_path: Path, shifter: User) -> None:
    chance = random.Random(SEED)
    kept = []
    texts = []
    for row in jobs({number: {"at": AT} for number in range(1, 121)}):
        text = generated_text(chance, most_lines=4)
        (tmp_path / str(row.pk)).write_text(text)
        kept.append((row, [text.encode()]))
        texts.append(text)
    keep_logs(kept)
    files = sorted(path.name for path in tmp_path.iterdir())
    with_hits = 0
    for _ in range(50):
        line = chance.choice(chance.choice(texts).split("\n")) or "x"
        start = chance.randrange(len(line))
        phrase = line[start : start + chance.randint(1, 30)]
        if not phrase.strip():
            continue
        grep = subprocess.run(
            ["grep", "-liF", "-e", phrase, "--", *files],
            cwd=tmp_path,
            env={"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=False,
        )
        expected = {int(name) for name in grep.stdout.split()}
        hits = {hit.key for hit in found(PostgresEngine(), Query((Phrase((phrase,)),)), shifter)}
        assert hits == expected, phrase
        with_hits += bool(expected)
    assert with_hits > 30
