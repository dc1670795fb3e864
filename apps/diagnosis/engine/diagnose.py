"""Diagnose a job from the findings of the log classifiers and the scheduler's facts."""

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from apps.diagnosis import wording
from apps.diagnosis.engine.base import (
    Block,
    EngineVerdict,
    Findings,
    Hit,
    JobFacts,
    LogClassifier,
    Outage,
    Reason,
)
from apps.diagnosis.engine.evidence.chain import causal_chain, without_duplicates
from apps.diagnosis.engine.evidence.survey import Survey
from apps.diagnosis.engine.formats.condor_events import with_events
from apps.diagnosis.engine.formats.plain_lines import is_binary
from apps.diagnosis.engine.logs.tail import BUDGET_BYTES, WHOLE, WHOLE_BYTES, LogPart, read_back
from apps.diagnosis.engine.verdict import decide
from apps.diagnosis.enums import ReasonKind, Stream

log = logging.getLogger(__name__)

SAMPLE_BYTES = 64 * 1024
#: Maximum size of the part of a log that is held in memory.
HELD_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A verdict and all known errors found, in log order.

    `omitted` are the IDs of known errors that were too slow to search in the whole logs.
    """

    verdict: EngineVerdict
    hits: tuple[Hit, ...]
    omitted: frozenset[str] = frozenset()

    def by_weight(self) -> list[Hit]:
        """Return all known errors: those among the reasons of the verdict first, then the others.

        Both groups are in log order.
        """
        shown = {reason.target for reason in self.verdict.reasons}
        return sorted(self.hits, key=lambda hit: f"{hit.stream}:{hit.offset}" not in shown)


def read_log(descriptor: int, part: LogPart = WHOLE) -> Block:
    """Read the end of a log: all of it up to 8 MB, its last 8 MB up to 64 MB, else the last 4 MB.

    `survey` examines what precedes it. The file holds text: see `opened_text`.
    """
    length = part.size_in(os.fstat(descriptor).st_size) - part.start
    if length <= WHOLE_BYTES:
        budget = min(length, HELD_BYTES)
    else:
        budget = BUDGET_BYTES
    return read_back(descriptor, part, budget_bytes=max(budget, 1))


def diagnose(
    facts: JobFacts,
    blocks: Sequence[Block],
    *,
    classifiers: Mapping[str, LogClassifier],
    outages: Sequence[Outage] = (),
    reasons: Sequence[Reason] = (),
    surveys: Mapping[Stream, Survey] | None = None,
) -> Diagnosis:
    """Return the verdict on a job from its logs; without logs, from facts and outages alone.

    `surveys` holds the findings in the part of each log before its block. A classifier that raises
    is logged and named in the reasons; the findings of the others still count.
    """
    facts = with_events(facts, blocks)
    surveys = surveys or {}
    findings: list[Findings] = []
    for block in blocks:
        findings += [
            _classify(name, classifiers[name], facts, block) for name in sorted(classifiers)
        ]

    all_reasons = list(reasons)
    for finding in findings:
        all_reasons.extend(finding.reasons)
    for block in blocks:
        before = surveys.get(block.stream, Survey())
        if not block.is_whole and not before.reaches(block):
            all_reasons.append(
                Reason(ReasonKind.LOG, wording.partly_read(block, before.read_bytes))
            )
    tails = (block.data[-SAMPLE_BYTES:] for block in blocks)
    all_reasons.extend(Reason(ReasonKind.LOG, wording.BINARY) for tail in tails if is_binary(tail))

    all_hits: list[Hit] = []
    for before in surveys.values():
        all_hits.extend(before.hits)
    for finding in findings:
        all_hits.extend(finding.hits)
    hits = sorted(
        without_duplicates(all_hits), key=lambda hit: (hit.stream, hit.offset, hit.pattern.id)
    )

    verdict = decide(
        facts,
        causal_chain(facts, hits, blocks),
        outages=outages,
        reasons=all_reasons,
        searched=bool(blocks),
    )
    omitted: set[str] = set()
    for before in surveys.values():
        omitted.update(before.omitted)
    for finding in findings:
        omitted.update(finding.omitted)
    return Diagnosis(verdict, tuple(hits), frozenset(omitted))


def _classify(name: str, classifier: LogClassifier, facts: JobFacts, block: Block) -> Findings:
    try:
        return classifier.classify(facts, block)
    except Exception:  # a third party's classifier may raise anything
        log.exception("log classifier %s failed", name)
        return Findings(reasons=(Reason(ReasonKind.PLUGIN, wording.classifier_failed(name)),))
