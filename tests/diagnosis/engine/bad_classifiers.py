"""Classifiers as an experiment might write them, good and bad;
imported by processes without Django's settings.
"""

import os
import time

from apps.diagnosis.engine.base import Block, Findings, JobFacts, Reason
from apps.diagnosis.enums import ReasonKind


class Counts:
    name = "counts"

    def classify(self, facts: JobFacts, block: Block) -> Findings:
        return Findings(
            reasons=(Reason(ReasonKind.LOG, f"{len(block.data)} bytes from {block.offset}"),)
        )


class Hangs(Counts):
    def classify(self, facts: JobFacts, block: Block) -> Findings:
        while True:
            time.sleep(0.01)


class Fails(Counts):
    def classify(self, facts: JobFacts, block: Block) -> Findings:
        raise KeyError("no such run")


class Eats(Counts):
    def classify(self, facts: JobFacts, block: Block) -> Findings:
        return Findings(reasons=(bytes(1 << 40),))


class Dies(Counts):
    def classify(self, facts: JobFacts, block: Block) -> Findings:
        os._exit(1)
