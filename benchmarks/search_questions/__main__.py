"""Whether both engines of the search, a recount and grep agree:
`python -m benchmarks.search_questions [--logs N] [--questions N]`.

Fills a PostgreSQL with N jobs of 70 days, their logs, and scripts; with `--samples DIR`, lines of
the real logs in that directory are among them. Indexes them in PostgreSQL and in a real
Elasticsearch of one node. Then makes questions of the texts and asks both engines for all hits,
page by page as the API does, with its limits of time: words, starts of words, phrases,
expressions, what a text must not have, and fields; each tenth question as a user who sees one
experiment. Compares hits and their order with a recount over the texts in memory, which uses no
index, and every 10th phrase with `grep -iF` over the texts as files.

Prints one JSON object last. Ends with exit status 1 if an answer differs; the smallest question
that differs is printed. A question depends on its number and the seed alone, so `--first 4001`
goes on behind 4,000. With `--directory` the database is kept, and used again.
"""

import argparse
import json
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.database import database, set_up_django
from benchmarks.elasticsearch_server import elasticsearch
from benchmarks.page_visits import shifter

if TYPE_CHECKING:
    from apps.search.domain.engine.base import Engine
    from benchmarks.search_questions.questions import Question

GREP_EVERY = 10
REPORT_EVERY = 250


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=int, default=20_000)
    parser.add_argument("--questions", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=1, help="number of the first question")
    parser.add_argument("--seed", type=int, default=20_261_130)
    parser.add_argument("--seconds", type=float, help="ask no more after this time")
    parser.add_argument("--samples", type=Path, help="directory with real logs")
    parser.add_argument("--heap", type=int, default=1024, metavar="MB", help="of Elasticsearch")
    parser.add_argument("--directory", type=Path)
    options = parser.parse_args()
    with database(options.directory) as (base, url):
        set_up_django(base, url, LOG_LEVEL="ERROR")
        from django.db import connection

        from apps.diagnosis.models import LogExcerpt
        from benchmarks.search_questions import lines, world

        if not LogExcerpt.objects.exists():
            started = time.perf_counter()
            samples = lines.sample_lines(options.samples)
            world.fill(options.logs, seed=options.seed, samples=samples)
            with connection.cursor() as cursor:
                cursor.execute("VACUUM ANALYZE")
            print(f"filled in {time.perf_counter() - started:.0f} s", flush=True)
        with elasticsearch(options.heap) as server, tempfile.TemporaryDirectory() as files:
            search_url = f"elasticsearch://127.0.0.1:{server.port}/site?replicas=0"
            engines = {
                "postgresql": indexed_engine(""),
                "elasticsearch": indexed_engine(search_url),
            }
            comparison = Comparison(engines, Path(files), options.seed)
            comparison.run(options.first, options.questions, options.seconds)
    print(json.dumps(comparison.figures(), ensure_ascii=False))
    raise SystemExit(bool(comparison.differing))


def indexed_engine(search_url: str) -> "Engine":
    """Return an engine that has all logs in its index."""
    from django.conf import settings

    from apps.search.domain.engine.chosen import engine_in_use
    from apps.search.domain.indexing.fill import index_kept_logs

    settings.SEARCH_URL = search_url
    started = time.perf_counter()
    while index_kept_logs(batches=100, at=datetime.now(UTC)):
        pass
    engine = engine_in_use()
    print(f"{engine.name} indexed in {time.perf_counter() - started:.0f} s", flush=True)
    return engine


class Comparison:
    """Asks everyone the same questions, and counts what differs."""

    def __init__(self, engines: Mapping[str, "Engine"], files: Path, seed: int) -> None:
        from apps.search.domain.engine.base import SearchScope
        from benchmarks.search_questions.answers import Grep, member_of
        from benchmarks.search_questions.questions import EVERYTHING, Questions
        from benchmarks.search_questions.recount import Recount
        from benchmarks.search_questions.world import read_texts

        at = datetime.now(UTC)
        texts = read_texts()
        recount = Recount(texts, at=at)
        self.texts = len(texts)
        self.text_bytes = sum(len(text.data) for text in texts)
        self.seed = seed
        self.engines = engines
        self.questions = Questions(recount, seed=seed)
        self.grep = Grep(files, texts)
        self.scopes = {
            EVERYTHING: SearchScope(shifter(), at),
            ("NOVA",): SearchScope(member_of("NOVA"), at),
        }
        self.kinds: Counter[str] = Counter()
        self.hits: Counter[str] = Counter()
        self.seconds: Counter[str] = Counter()
        self.pages: Counter[str] = Counter()
        self.parts = ["recount", *engines, "grep"]
        self.right = 0
        self.with_hits = 0
        self.most_hits = 0
        self.compared_with_grep = 0
        self.last = 0
        self.differing: list[tuple[str, dict[str, Any]]] = []
        print(f"{self.texts} texts, {self.text_bytes / 1e6:.0f} MB, seed {seed}", flush=True)

    def run(self, first: int, last: int, seconds: float | None) -> None:
        """Ask the questions with these numbers, as long as time is left."""
        started = time.perf_counter()
        for number in range(first, last + 1):
            began = time.perf_counter()
            question = self.questions.question(number)
            self.seconds["recount"] += time.perf_counter() - began
            self.compare(question)
            self.last = number
            taken = time.perf_counter() - started
            if number % REPORT_EVERY == 0:
                parts = ", ".join(f"{name} {self.seconds[name]:.0f}" for name in self.parts)
                print(
                    f"{number}: {taken:.0f} s ({parts}), {len(self.differing)} differ", flush=True
                )
            if seconds is not None and taken > seconds:
                break
        self.seconds["all"] = time.perf_counter() - started

    def compare(self, question: "Question") -> None:
        """Ask both engines, and grep where it knows the answer."""
        from benchmarks.search_questions.answers import ask

        text = str(question.query)
        expected = [row.order for row in question.expected]
        self.kinds[question.kind] += 1
        self.with_hits += bool(expected)
        self.most_hits = max(self.most_hits, len(expected))
        self.hits["recount"] += len(expected)
        answers = {}
        for name, engine in self.engines.items():
            began = time.perf_counter()
            answers[name], pages = ask(engine, text, self.scopes[question.experiments])
            taken = time.perf_counter() - began
            self.seconds[name] += taken
            self.seconds[f"{name}: {question.kind}"] += taken
            self.pages[name] += pages
            self.hits[name] += len(answers[name])
            self.right += len(set(answers[name]) & set(expected))
        if phrase := self.phrase_for_grep(question):
            began = time.perf_counter()
            answers["grep"] = self.grep.hits(phrase)
            self.seconds["grep"] += time.perf_counter() - began
            self.compared_with_grep += 1
        for name, answer in answers.items():
            if answer != expected:
                self.report(name, question, answer, expected)

    def phrase_for_grep(self, question: "Question") -> str:
        """Return the phrase of a question that is nothing else, of every 10th; else nothing."""
        clauses = question.query.clauses
        if question.kind not in ("phrase", "phrase within a word", "absent"):
            return ""
        is_phrase = len(clauses) == 1 and hasattr(clauses[0], "pieces")
        if not is_phrase or len(question.experiments) == 1:
            return ""
        is_chosen = self.kinds[question.kind] % GREP_EVERY == 0
        return clauses[0].pieces[0] if is_chosen else ""

    def report(self, name: str, question: "Question", answer: list, expected: list) -> None:
        text = str(question.query)
        example = {
            "number": question.number,
            "question": text,
            "who": name,
            "hits": len(answer),
            "expected": len(expected),
            "missing": [str(order) for order in expected if order not in set(answer)][:3],
            "wrong": [str(order) for order in answer if order not in set(expected)][:3],
        }
        self.differing.append((text, example))
        print(json.dumps(example, ensure_ascii=False), flush=True)

    def figures(self) -> dict[str, Any]:
        smallest = min(self.differing, key=lambda row: len(row[0]), default=("", None))
        expected = self.hits["recount"] * len(self.engines)
        answered = sum(self.hits[name] for name in self.engines)
        return {
            "texts": self.texts,
            "text_bytes": self.text_bytes,
            "seed": self.seed,
            "questions": self.kinds.total(),
            "last_question": self.last,
            "kinds": dict(self.kinds),
            "with_hits": self.with_hits,
            "most_hits": self.most_hits,
            "hits": dict(self.hits),
            "compared_with_grep": self.compared_with_grep,
            "differing": len(self.differing),
            "smallest": smallest[1],
            "recall_percent": round(100 * self.right / max(expected, 1), 4),
            "precision_percent": round(100 * self.right / max(answered, 1), 4),
            "pages": dict(self.pages),
            "seconds": {name: round(taken, 1) for name, taken in self.seconds.items()},
        }


if __name__ == "__main__":
    main()
