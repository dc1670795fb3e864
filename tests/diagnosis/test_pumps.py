"""No log, however it is written, keeps a worker busy: 200 kB of the worst of it in half a second."""

import os
import re
from contextlib import suppress
from pathlib import Path

import pytest

from apps.diagnosis.engine.base import Block, JobFacts
from apps.diagnosis.engine.catalogue import built_in
from apps.diagnosis.engine.diagnose import diagnose, read_log
from apps.diagnosis.engine.registry import classifiers
from apps.diagnosis.engine.scheduler_facts import parse_state
from apps.diagnosis.engine.tail import lines_of, read_around, read_back
from apps.diagnosis.enums import Role
from tests.worst_inputs import BYTES, run, shapes, within

PATTERNS = built_in().patterns
#: An error in a log of short lines: each line of its chunk was once matched with every pattern.
SHORT_LINES = ("a\n" * 30_000 + PATTERNS[0].example + "\n") * 4


def block(text: str) -> Block:
    data = text.encode()
    return Block(data, 0, len(data), 1)


@pytest.mark.parametrize("name", sorted(classifiers()))
def test_classifiers(name):
    classifier = classifiers()[name]
    texts = [SHORT_LINES, SHORT_LINES.replace("\n", "\r\n"), *shapes(PATTERNS[0].example)]
    run(lambda text: classifier.classify(JobFacts(), block(text)), texts, name)


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.id)
def test_known_error(pattern):
    """Its example over and over, also cut short, in lines and in one; and what it repeats, pumped."""
    example = pattern.example
    units = [example, example[:-1], re.sub(r"\d+", "9" * 1000, example), re.sub(r" +", " " * 1000, example)]
    texts = [text for unit in units for text in ((unit + "\n") * (BYTES // len(unit)), unit * (BYTES // len(unit)))]
    for text in texts:
        with within(what=pattern.id):
            built_in().classify(JobFacts(), block(text[:BYTES]))


def test_a_megabyte_of_short_lines_with_an_error_in_each_chunk():
    with within():
        built_in().classify(JobFacts(), block(SHORT_LINES * 4))


def test_noise_that_hides_errors_line_by_line():
    noise = next(pattern for pattern in PATTERNS if pattern.role is Role.NOISE)
    with within():
        built_in().classify(JobFacts(), block(f"{noise.example} {PATTERNS[0].example}\n" * 2000))


@pytest.mark.parametrize("text", [SHORT_LINES, *shapes("Traceback", "\r\n")], ids=lambda text: repr(text[:12]))
def test_reading_and_diagnosing_a_log(tmp_path: Path, text):
    path = tmp_path / "log"
    path.write_bytes(text.encode())
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with within(what="read"):
            whole = read_log(descriptor)
            read_back(descriptor, lines=500)
            read_around(descriptor, BYTES // 2, lines=500)
        with within(what="diagnose"):
            diagnose(JobFacts(), [whole], classifiers=classifiers())
        with within(what="lines"):
            lines_of(read_back(descriptor, lines=500))
    finally:
        os.close(descriptor)


def test_states_of_accounting():
    def parse(text: str) -> None:
        with suppress(ValueError):
            parse_state(text)

    run(parse, shapes("CANCELLED by ", "OUT_OF_ME+"), "parse_state")
