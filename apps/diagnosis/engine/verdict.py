"""Decide the verdict on a failed job from ranked evidence; `apps.diagnosis.wording` phrases it.

Order of evidence: end states that decide alone; known causes, earliest first; a limit at which the
job was killed; generic errors; any other killing signal; symptoms, then consequences; outages of
services it needed; the exit code.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter

from apps.diagnosis import wording
from apps.diagnosis.engine.base import EngineVerdict, Hit, JobFacts, Outage, Reason
from apps.diagnosis.engine.evidence import scheduler_facts as facts_of
from apps.diagnosis.engine.evidence.chain import masked
from apps.diagnosis.engine.evidence.outages import outage_of
from apps.diagnosis.enums import (
    ADVICE_OF,
    VERDICT_OF,
    Category,
    Confidence,
    JobAdvice,
    Overlap,
    ReasonKind,
    Role,
    VerdictKind,
)

SHOWN_HITS = 4
CONFIDENCE_OF = {
    Role.CAUSE: Confidence.HIGH,
    Role.GENERIC: Confidence.MEDIUM,
    Role.SYMPTOM: Confidence.MEDIUM,
    Role.CONSEQUENCE: Confidence.LOW,
}
WEIGHT = {role: weight for weight, role in enumerate(Role)}


@dataclass(frozen=True, slots=True)
class VerdictCandidate:
    """A piece of evidence that can decide the verdict."""

    category: Category
    confidence: Confidence
    summary: str
    reason: Reason
    cause: Hit | None = None
    service: str = ""


def decide(
    facts: JobFacts,
    hits: Iterable[Hit] = (),
    *,
    outages: Sequence[Outage] = (),
    reasons: Sequence[Reason] = (),
    searched: bool = True,
) -> EngineVerdict:
    """Return the verdict; deterministic for the same evidence.

    `searched` is whether a log was read.
    """
    ranked = ranked_hits(hits)
    decision = _best_candidate(facts, ranked, outages, searched=searched)
    decision = _apply_outages(facts, decision, ranked, outages)
    all_reasons = [decision.reason, *_other_reasons(facts, decision, ranked, outages)]
    if searched and not ranked:
        all_reasons.append(Reason(ReasonKind.LOG, wording.NOTHING_IN_LOG))
    all_reasons.extend(reasons)
    verdict = VERDICT_OF[decision.category]
    return EngineVerdict(
        verdict=verdict,
        advice=_advice_of(decision),
        category=decision.category,
        confidence=decision.confidence,
        summary=decision.summary,
        reasons=tuple(dict.fromkeys(all_reasons)),
        cause=decision.cause,
        service=decision.service,
    )


def _advice_of(decision: VerdictCandidate) -> JobAdvice:
    """Return what to do: as usual for the verdict, unless the known error asks for more care."""
    usual = ADVICE_OF[VERDICT_OF[decision.category]]
    if decision.cause is None or usual not in (JobAdvice.RETRY, JobAdvice.DEBUG):
        return usual
    advice = decision.cause.pattern.advice
    return advice if advice in (JobAdvice.HOLD, JobAdvice.ESCALATE) else usual


def ranked_hits(hits: Iterable[Hit]) -> list[Hit]:
    """Sort hits by role, then position, then the most specific first; leave out noise.

    Lines of two files have no common order: stderr comes before stdout.
    """

    def rank(hit: Hit) -> tuple[int, str, int, int, str]:
        return WEIGHT[hit.pattern.role], hit.stream, hit.offset, -hit.length, hit.pattern.id

    return sorted((hit for hit in hits if hit.pattern.role is not Role.NOISE), key=rank)


def _best_candidate(
    facts: JobFacts, ranked: Sequence[Hit], outages: Sequence[Outage], *, searched: bool
) -> VerdictCandidate:
    """Return the first candidate, in order of evidence."""
    killed = facts_of.killed_by(facts)
    at_limit = (
        killed is not None
        and killed.category is Category.RESOURCE
        and killed.confidence is not Confidence.LOW
    )
    candidates = (
        _from_fact(facts_of.deciding_state(facts)),
        _from_hits(ranked, {Role.CAUSE}),
        _from_fact(killed) if at_limit else None,
        None if facts.has_succeeded else _from_hits(ranked, {Role.GENERIC}),
        _from_fact(killed),
        _from_fact(facts_of.held(facts)),
        None if facts.has_succeeded else _from_hits(ranked, {Role.SYMPTOM, Role.CONSEQUENCE}),
        None if facts.has_succeeded else _from_outages(outages),
        _from_fact(facts_of.known_exit_code(facts)),
    )
    decided = next((candidate for candidate in candidates if candidate), None)
    if decided:
        return decided
    if ranked:
        summary = wording.ONLY_CONSEQUENCES
    elif searched:
        summary = wording.NOTHING_MATCHED
    else:
        summary = wording.NO_LOG
    if facts.has_succeeded:
        summary = wording.COMPLETED
    return VerdictCandidate(Category.UNKNOWN, Confidence.LOW, summary, _end_state(facts))


def _end_state(facts: JobFacts) -> Reason:
    return Reason(ReasonKind.SCHEDULER, wording.end_state(facts))


def _from_fact(fact: facts_of.Fact | None) -> VerdictCandidate | None:
    if fact is None:
        return None
    return VerdictCandidate(
        fact.category, fact.confidence, fact.wording.summary, Reason(fact.kind, fact.wording.reason)
    )


def _from_hits(ranked: Sequence[Hit], roles: set[Role]) -> VerdictCandidate | None:
    """Return the candidate from the first hit with one of these roles that may decide."""
    for hit in ranked:
        if hit.pattern.role in roles and _may_decide(hit):
            return _from_hit(hit)
    return None


def _may_decide(hit: Hit) -> bool:
    """Return whether an error says why the job failed; a consequence says only that it did.

    A line that merely looks like an error is a weak sign of a fault in the job: it decides last,
    and never advises a retry.
    """
    pattern = hit.pattern
    if pattern.category is Category.UNKNOWN:
        return False
    if pattern.role is not Role.CONSEQUENCE:
        return True
    only_looks_like_an_error = not pattern.regex
    return only_looks_like_an_error and VERDICT_OF[pattern.category] is not VerdictKind.SERVICE


def _from_hit(hit: Hit) -> VerdictCandidate:
    pattern = hit.pattern
    return VerdictCandidate(
        category=pattern.category,
        confidence=CONFIDENCE_OF[pattern.role],
        summary=wording.known_error(hit).summary,
        reason=_hit_reason(hit),
        cause=hit,
        service=pattern.service if VERDICT_OF[pattern.category] is VerdictKind.SERVICE else "",
    )


def _hit_reason(hit: Hit) -> Reason:
    return Reason(
        ReasonKind.CATALOGUE, wording.known_error(hit).reason, f"{hit.stream}:{hit.offset}"
    )


def _outage_reason(outage: Outage) -> Reason:
    return Reason(ReasonKind.OUTAGE, wording.outage(outage).reason, f"service:{outage.service}")


def _from_outages(outages: Sequence[Outage]) -> VerdictCandidate | None:
    """Return an outage of a needed service: the best guess if there is no other evidence."""
    for outage in outages:
        if outage.overlap is Overlap.YES:
            summary = wording.outage(outage).summary
            reason = _outage_reason(outage)
            return VerdictCandidate(
                Category.SERVICE, Confidence.LOW, summary, reason, service=outage.service
            )
    return None


def _apply_outages(
    facts: JobFacts, decision: VerdictCandidate, ranked: Sequence[Hit], outages: Sequence[Outage]
) -> VerdictCandidate:
    """Let an outage confirm an error of its service, or turn an error there into a service problem.

    A job killed at its time limit, whose log shows errors of a service with an outage, was waiting
    for that service. Without an outage, only the log supports a service failure: confidence drops
    to medium.
    """
    hits = [decision.cause] if decision.cause else []
    if facts.state in facts_of.TIME_LIMIT_STATES:
        hits = [hit for hit in ranked if WEIGHT[hit.pattern.role] <= WEIGHT[Role.GENERIC]]
    for hit in hits:
        outage = outage_of(hit.pattern, outages)
        if outage is None or hit.pattern.category in {Category.RESOURCE, Category.USER}:
            continue
        by_service = _from_hit(hit)
        return replace(
            by_service,
            category=Category.SERVICE,
            confidence=Confidence.HIGH,
            summary=wording.outage_confirmed(outage, hit),
            service=outage.service,
        )
    if (
        decision.cause
        and decision.category is Category.SERVICE
        and decision.confidence is Confidence.HIGH
    ):
        return replace(decision, confidence=Confidence.MEDIUM)
    return decision


def _further_hits(decision: VerdictCandidate, ranked: Sequence[Hit]) -> list[Hit]:
    """Return further errors to show, by role: the first of each kind, the last, then the others.

    Of lines that differ only in numbers, the first is shown.
    """
    shown = [decision.cause] if decision.cause else []
    kinds = {hit.pattern.id for hit in shown}
    lasts = {hit.pattern.id: hit for hit in ranked}
    places = []
    for hit in ranked:
        kind = hit.pattern.id
        if kind not in kinds:
            place = 0
        elif hit is lasts[kind]:
            place = 1
        else:
            place = 2
        places.append((WEIGHT[hit.pattern.role], place, hit.offset))
        kinds.add(kind)
    seen = {masked(hit) for hit in shown}
    further: list[Hit] = []
    for _, hit in sorted(zip(places, ranked, strict=True), key=itemgetter(0)):
        if len(further) == SHOWN_HITS - 1:
            break
        if (line := masked(hit)) not in seen:
            seen.add(line)
            further.append(hit)
    return further


def _other_reasons(
    facts: JobFacts, decision: VerdictCandidate, ranked: Sequence[Hit], outages: Sequence[Outage]
) -> Iterable[Reason]:
    """Yield the evidence that did not decide, by weight: outages, facts, further known errors.

    Services without an outage are left out; services of unknown state come last.
    """
    out = [outage for outage in outages if outage.overlap is Overlap.YES]
    out.sort(key=lambda outage: outage.service != decision.service)
    yield from map(_outage_reason, out)
    yield _end_state(facts)
    for fact in (
        facts_of.deciding_state(facts),
        facts_of.killed_by(facts),
        facts_of.known_exit_code(facts),
    ):
        if fact:
            yield Reason(fact.kind, fact.wording.reason)
    yield from map(_hit_reason, _further_hits(decision, ranked))
    if decision.cause and decision.cause.pattern.advice != _advice_of(decision):
        yield Reason(ReasonKind.CATALOGUE, wording.catalogue_advice(decision.cause))
    if decision.cause and decision.cause.pattern.instructions:
        yield Reason(ReasonKind.CATALOGUE, wording.instructions(decision.cause))
    for outage in outages:
        if outage.overlap is Overlap.UNKNOWN:
            yield _outage_reason(outage)
