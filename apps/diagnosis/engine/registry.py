"""Registry of log classifiers: the built-in catalogue and grammar, and plugins.

Plugins run in separate processes.
"""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache

from apps.core.bounded_pool import POOL, BudgetExceeded, PoolBusy
from apps.core.domain.plugins import Registry
from apps.diagnosis.engine.base import Block, Findings, JobFacts, LogClassifier

log = logging.getLogger(__name__)

#: A plugin is a callable without arguments that returns a classifier, for example a class.
REGISTRY: Registry[Callable[[], LogClassifier]] = Registry(
    group="opsportal.log_classifiers",
    builtins={
        "catalogue": "apps.diagnosis.engine.evidence.catalogue:built_in",
        "grammar": "apps.diagnosis.engine.evidence.grammar:built_in",
    },
)


#: Limits of a plugin: the size of the part at the end of a log that it gets, and its time. A plugin
#: that takes longer is paused.
PLUGIN_BYTES = 4 * 1024 * 1024
PLUGIN_SECONDS = 5.0
REST_SECONDS = 300.0


class BoundedClassifier:
    """A third party's classifier in its own process, with limits of time and memory."""

    def __init__(self, name: str, make: Callable[[], LogClassifier]) -> None:
        self.name = name
        self._make = make
        self._rests_until = 0.0

    def classify(self, facts: JobFacts, block: Block) -> Findings:
        """Return the findings of the classifier.

        Raises `RuntimeError` if it fails, and `BudgetExceeded` if it exceeds its limits or did so
        recently.
        """
        if time.monotonic() < self._rests_until:
            raise BudgetExceeded("it exceeded its limits recently")
        try:
            answer = POOL.call(
                _classify_with, self._make, facts, _end_of(block), seconds=PLUGIN_SECONDS
            )
        except PoolBusy:
            raise
        except BudgetExceeded:
            self._rests_until = time.monotonic() + REST_SECONDS
            raise
        if isinstance(answer, Findings):
            return answer
        raise RuntimeError(answer)


def _end_of(block: Block) -> Block:
    """Return the last whole lines of a block, which are the part that a plugin gets."""
    cut = max(0, len(block.data) - PLUGIN_BYTES)
    cut = cut and (block.data.find(b"\n", cut) + 1 or cut)
    number = None
    if block.first_line is not None:
        number = block.first_line + block.data.count(b"\n", 0, cut)
    return replace(block, data=block.data[cut:], offset=block.offset + cut, first_line=number)


def _classify_with(
    make: Callable[[], LogClassifier], facts: JobFacts, block: Block
) -> Findings | str:
    """Run a plugin, created once per process; return its findings, or an error message."""
    try:
        return _made(make).classify(facts, block)
    except Exception as error:  # a third party's code may raise anything
        return f"{type(error).__name__}: {error}"[:500]


@cache
def _made(make: Callable[[], LogClassifier]) -> LogClassifier:
    return make()


@cache
def classifiers() -> Mapping[str, LogClassifier]:
    """Return all working classifiers, created once per process.

    A broken classifier is logged and left out.
    """
    made: dict[str, LogClassifier] = {}
    for name, make in REGISTRY.working().items():
        try:
            own = make()
            if name in REGISTRY.builtins:
                made[name] = own
            else:
                made[name] = BoundedClassifier(name, make)
        except Exception as error:  # a third party's code may raise anything
            REGISTRY.problems[name] = f"cannot be created: {type(error).__name__}: {error}"
            log.exception("log classifier %s cannot be created", name)
    return made
