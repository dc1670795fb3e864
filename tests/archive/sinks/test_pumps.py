"""No text of a job keeps the archive busy: each pattern,
lexer and parser with 200 kB of its worst input.
"""

import time
from itertools import islice

import pytest

from apps.archive.domain import comparison, shown_contents, verification
from apps.archive.domain.bundle import safe_name
from apps.archive.domain.search import search, words
from apps.archive.sinks import files
from apps.archive.sinks.elasticsearch.documents import as_json, document
from apps.archive.sinks.kafka import message
from apps.archive.web import highlight
from apps.core.domain.secrets.masking import Masker, replace_secrets, secrets_of
from capture.wire import batches, report
from tests.factories.archive import captured_job
from tests.pumps import slow_input_of_parser, slow_inputs_of
from tests.worst_inputs import PIECES, long_words, pumped

#: By the clock, as these wait for another process; far more than they wait, as the machine may be
#: busy.
HANGS_SECONDS = 60
MASKER = Masker(names="(?i)token", key=b"key")


def raw(text):
    return text.encode("utf-8", "surrogatepass")


def job(text):
    return captured_job(
        1,
        script=raw(text),
        environment=b"\1\0\0\0" + raw(text) + b"\0",
        name=text[:1000],
        arguments=text,
    )


def masked(text):
    variables = [(b"API_TOKEN", raw(text)[:50]), (b"B", raw(text)), (raw(text), b"x")]
    after, _ = MASKER.mask(variables)
    MASKER.mask_text(f"sbatch --export=API_TOKEN={text}")
    return replace_secrets(raw(text), secrets_of(variables, after))


def hits(text):
    matcher = search._Matcher(
        search.ScriptSearch(words=text[:200], line=text[:200], text=text[:200], module=text[:100])
    )
    return list(islice(matcher.hits(raw(text)[: shown_contents.SHOWN_BYTES]), search.HIT_LINES))


def compared(text):
    lines = text.split("\n")[: shown_contents.SHOWN_LINES]
    other = [*lines[1:], "x"]
    comparison.compare_variables({"A": text}, {"A": text + "x"})
    return comparison.compare_lines(lines, other, lines, other, plain=True)


PARSERS = {
    "words": words.words_of,
    "query": lambda text: words.query_for(text[:2_000]),
    "hits": hits,
    "shown script": lambda text: shown_contents.show_script(raw(text), size_bytes=len(text)),
    "shown environment": lambda text: shown_contents.show_environment(
        b"\1\0\0\0" + raw(text), size_bytes=9
    ),
    "plain comparison": compared,
    "made equal": lambda text: comparison.normalise(text, job_id="4711"),
    "masking": masked,
    "accounting's text": lambda text: verification._as_text(raw(text)),
    "accounting's environment": lambda text: verification._compare_environments(
        b"\1\0\0\0" + raw(text) + b"\0", b"\1\0\0\0" + raw(text) + b"\0", MASKER, {}
    ),
    "batch": lambda text: batches.unpack_untrusted(batches.pack([job(text)])),
    "batch of anything": lambda text: batches.unpack_untrusted(raw(text)),
    "report": lambda text: report.CaptureReport.from_detail(
        {"last_error": text, "unreadable": {text: text}}
    ),
    "printable": report.printable,
    "Elasticsearch": lambda text: as_json(document(job(text))),
    "Kafka": lambda text: (
        message.key(job(text)),
        message.value(job(text)),
        message.headers(job(text)),
    ),
    "file name": files.safe,
    "name in a tar": safe_name,
}


def test_patterns_are_fast():
    assert slow_inputs_of("apps.archive") == {}


@pytest.mark.parametrize("name", PARSERS)
def test_parser_is_fast(name):
    assert slow_input_of_parser(PARSERS[name]) == ""


@pytest.mark.parametrize(
    "first", ["#!/bin/sh", *(f"#!/usr/bin/{name}" for name, _ in highlight._LEXERS)]
)
def test_lexer_is_fast_or_killed(first, monkeypatch):
    """Without colours, where its budget is not enough."""
    # A hundred scripts would take 0.25 s of CPU each.
    monkeypatch.setattr(highlight, "SECONDS", 0.05)
    monkeypatch.setattr(highlight, "KILL_SECONDS", 0.5)
    highlight.highlight([first])
    for text in (*map(pumped, PIECES[::6]), *long_words()):
        lines = [first, *text.text().split("\n")][: shown_contents.SHOWN_LINES]
        began = time.monotonic()
        assert len(highlight.highlight(lines)) == len(lines)
        assert time.monotonic() - began < HANGS_SECONDS, str(text)
        highlight.highlight([first])  # the next process is there


def test_comparison_is_fast_or_plain():
    side = comparison.ComparedJob("1", ["a"], {})
    for text in (*map(pumped, PIECES[::6]), *long_words()):
        long_text = text.text()
        lines = long_text.split("\n")[: shown_contents.SHOWN_LINES]
        comparison.compare(side, side, exact=False)
        began = time.monotonic()
        comparison.compare(
            comparison.ComparedJob("4711", lines, {"A": long_text}),
            comparison.ComparedJob("4712", [f"{line}x" for line in lines], {"A": long_text + "x"}),
            exact=False,
        )
        assert time.monotonic() - began < HANGS_SECONDS, str(text)
