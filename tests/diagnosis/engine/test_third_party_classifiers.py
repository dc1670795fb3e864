"""Classifiers of experiments run in processes of their own: a bad one costs its own opinion,
and no more.
"""

from dataclasses import replace
from unittest.mock import Mock

import pytest

from apps.core.bounded_pool import BudgetExceeded, PoolBusy
from apps.diagnosis.engine import registry
from apps.diagnosis.engine.base import Block, JobFacts
from apps.diagnosis.engine.diagnose import diagnose
from apps.diagnosis.engine.registry import BoundedClassifier, classifiers
from apps.diagnosis.wording import classifier_failed
from tests.diagnosis.engine import bad_classifiers

LOG = b"HTTP error: 503 Service Unavailable: samweb.declareFile r91_s77.root\n"
BLOCK = Block(LOG, 0, len(LOG), 1)


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(registry, "PLUGIN_SECONDS", 1.0)


def test_good_one_is_heard():
    found = BoundedClassifier("counts", bad_classifiers.Counts).classify(JobFacts(), BLOCK)
    assert [reason.text for reason in found.reasons] == [f"{len(LOG)} bytes from 0"]


def test_it_sees_the_end_of_a_large_log_from_a_whole_line():
    large = Block(b"x" * 99 + b"\n", 0, 0, 1)
    large = replace(
        large, data=large.data * (registry.PLUGIN_BYTES // 50), file_bytes=registry.PLUGIN_BYTES * 2
    )
    [reason] = (
        BoundedClassifier("counts", bad_classifiers.Counts).classify(JobFacts(), large).reasons
    )
    size, offset = (int(word) for word in reason.text.replace("bytes from ", "").split())
    assert (offset % 100, offset + size) == (0, len(large.data))
    assert registry.PLUGIN_BYTES - 100 <= size <= registry.PLUGIN_BYTES


@pytest.mark.parametrize("bad", [bad_classifiers.Hangs, bad_classifiers.Dies])
def test_one_that_hangs_or_dies_is_not_asked_again_for_a_while(bad):
    classifier = BoundedClassifier("bad", bad)
    with pytest.raises(BudgetExceeded):
        classifier.classify(JobFacts(), BLOCK)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "POOL", None)
        with pytest.raises(BudgetExceeded, match="recently"):
            classifier.classify(JobFacts(), BLOCK)
    test_good_one_is_heard()


def test_one_that_fails_or_wants_too_much_memory_says_how():
    with pytest.raises(RuntimeError, match="KeyError: 'no such run'"):
        BoundedClassifier("fails", bad_classifiers.Fails).classify(JobFacts(), BLOCK)
    with pytest.raises(RuntimeError, match="MemoryError"):
        BoundedClassifier("eats", bad_classifiers.Eats).classify(JobFacts(), BLOCK)


@pytest.mark.parametrize("bad", ["Hangs", "Dies", "Fails", "Eats"])
def test_verdict_is_that_without_it(bad):
    built_in = dict(classifiers())
    alone = diagnose(JobFacts(), [BLOCK], classifiers=built_in)
    assert alone.hits
    bounded = BoundedClassifier("bad", getattr(bad_classifiers, bad))
    diagnosis = diagnose(JobFacts(), [BLOCK], classifiers={**built_in, "bad": bounded})
    assert diagnosis.hits == alone.hits
    assert (diagnosis.verdict.verdict, diagnosis.verdict.cause) == (
        alone.verdict.verdict,
        alone.verdict.cause,
    )
    assert classifier_failed("bad") in [reason.text for reason in diagnosis.verdict.reasons]


def test_plugin_that_found_no_free_process_is_asked_for_the_next_log(monkeypatch):
    classifier = BoundedClassifier("counts", bad_classifiers.Counts)
    with monkeypatch.context() as patch:
        patch.setattr(registry.POOL, "call", Mock(side_effect=PoolBusy("all processes are busy")))
        with pytest.raises(PoolBusy):
            classifier.classify(JobFacts(), BLOCK)
    assert classifier.classify(JobFacts(), BLOCK).reasons
