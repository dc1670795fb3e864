"""No log, however it is written, keeps a worker busy: 200 kB of the worst of it in a second."""

import os
import re
from pathlib import Path

import pytest

from apps.diagnosis.domain.reading.log_texts import LogText
from apps.diagnosis.engine.base import Block, JobFacts
from apps.diagnosis.engine.diagnose import diagnose, read_log
from apps.diagnosis.engine.evidence.catalogue import built_in
from apps.diagnosis.engine.evidence.scheduler_facts import parse_state
from apps.diagnosis.engine.logs.tail import lines_of, read_back
from apps.diagnosis.engine.registry import classifiers
from apps.diagnosis.enums import Role
from tests.pumps import slow_input, within
from tests.worst_inputs import SIZE, Input, shapes

PATTERNS = built_in().patterns
#: An error in a log of short lines: each line of its chunk was once matched with every pattern.
SHORT_LINES = ("a\n" * 30_000 + PATTERNS[0].example + "\n") * 4


def block(text: str) -> Block:
    data = text.encode()
    return Block(data, 0, len(data), 1)


@pytest.mark.parametrize("name", sorted(classifiers()))
def test_classifiers(name):
    classifier = classifiers()[name]
    short_lines = [Input("", SHORT_LINES), Input("", SHORT_LINES.replace("\n", "\r\n"))]
    inputs = [*short_lines, *shapes(PATTERNS[0].example)]
    assert slow_input(lambda text: classifier.classify(JobFacts(), block(text)), inputs) == ""


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.id)
def test_known_error(pattern):
    """Its example over and over, also cut short, in lines and in one; and what it repeats,
    pumped.
    """
    example = pattern.example
    parts = [
        example,
        example[:-1],
        re.sub(r"\d+", "9" * 1000, example),
        re.sub(r" +", " " * 1000, example),
    ]
    inputs = [Input("", part + end) for part in parts for end in ("\n", "")]
    assert slow_input(lambda text: built_in().classify(JobFacts(), block(text)), inputs) == ""


def test_a_megabyte_of_short_lines_with_an_error_in_each_chunk():
    with within():
        built_in().classify(JobFacts(), block(SHORT_LINES * 4))


def test_noise_that_hides_errors_line_by_line():
    noise = next(pattern for pattern in PATTERNS if pattern.role is Role.NOISE)
    with within():
        built_in().classify(JobFacts(), block(f"{noise.example} {PATTERNS[0].example}\n" * 2000))


@pytest.mark.parametrize("log", [Input("", SHORT_LINES), *shapes("Traceback", "\r\n")], ids=str)
def test_reading_and_diagnosing_a_log(tmp_path: Path, log):
    path = tmp_path / "log"
    path.write_bytes(log.text().encode())
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with within(what="read"):
            whole = read_log(descriptor)
            read_back(descriptor, lines=500)
            text = LogText(descriptor, 0, SIZE, SIZE)
            text.start_of_lines(SIZE // 2, 500, reach=SIZE)
            text.end_of_lines(SIZE // 2, lines=500, reach=SIZE)
        with within(what="diagnose"):
            diagnose(JobFacts(), [whole], classifiers=classifiers())
        with within(what="lines"):
            lines_of(read_back(descriptor, lines=500))
    finally:
        os.close(descriptor)


def test_states_of_accounting():
    assert (
        slow_input(parse_state, shapes("CANCELLED by ", "OUT_OF_ME+"), refused=(ValueError,)) == ""
    )
