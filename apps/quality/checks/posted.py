"""Checks of posts: histograms against their references, and results of external tools."""

from collections.abc import Iterator
from dataclasses import replace

from apps.quality.checks.base import (
    Judgement,
    Limit,
    Limits,
    Number,
    above,
    below,
    quality_check,
    stage_check,
    undetermined,
)
from apps.quality.checks.facts import Facts, Histogram, StageFacts
from apps.quality.checks.statistics import chi_square, chi_square_probability, kolmogorov_distance
from apps.quality.enums import Outcome


@stage_check(
    "Histograms agree with their references",
    Limit("warn_probability", 0.05, "A lower chi² probability is a warning."),
    Limit("least_probability", 0.001, "A lower chi² probability fails."),
    Limit("most_distance", 0.2, "A larger Kolmogorov distance fails."),
    Limit("least_entries", 20, "Histograms with fewer entries are unknown."),
    Limit("wanted", 0, "Number of histograms required for each stage."),
)
def histograms(stage: StageFacts, facts: Facts, limits: Limits) -> Iterator[Judgement]:
    """Each histogram has the shape of its reference, by chi² and Kolmogorov distance."""
    wanted, count = int(limits["wanted"] or 0), len(stage.histograms)
    if count < wanted:
        why = f"{count} of {wanted} histograms were posted."
        missing = undetermined(why, subject="number of histograms")
        yield replace(missing, value=count, threshold=wanted)
    for one in stage.histograms:
        yield replace(_compare(one, limits), subject=one.name)


def _compare(one: Histogram, limits: Limits) -> Judgement:
    entries = (sum(one.reference), sum(one.observed))
    numbers: tuple[Number, ...] = (
        Number("entries of the reference", entries[0]),
        Number("entries observed", entries[1], one.link),
        Number("posted by", one.by),
    )
    if min(entries) < (limits["least_entries"] or 0) or min(entries) <= 0:
        why = f"Too few entries to compare: {entries[1]:,.0f} observed, {entries[0]:,.0f} in the reference."
        return undetermined(why, numbers)
    chi2, freedom = chi_square(one.reference, one.observed)
    probability = chi_square_probability(chi2, freedom)
    distance = kolmogorov_distance(one.reference, one.observed)
    numbers += (
        Number("chi²", round(chi2, 4)),
        Number("degrees of freedom", freedom),
        Number("probability of chi²", float(f"{probability:.4g}")),
        Number("Kolmogorov distance", round(distance, 6)),
    )
    value, unit = float(f"{probability:.6g}"), "probability"
    outcome, threshold = below(probability, warn=limits["warn_probability"], fail=limits["least_probability"])
    by_distance, most = above(distance, warn=None, fail=limits["most_distance"])
    if by_distance is Outcome.FAILED:
        outcome, value, threshold, unit = by_distance, distance, most, "distance"
    why = f"chi² is {chi2:.4g} of {freedom} degrees of freedom, probability {probability:.3g}; distance {distance:.3g}."
    return Judgement(outcome=outcome, why=why, value=value, threshold=threshold, unit=unit, numbers=numbers)


@quality_check(
    "Results of external tools",
    Limit("wanted", 0, "Number of results required for the request."),
)
def external(facts: Facts, limits: Limits) -> Iterator[Judgement]:
    """Results posted by external tools for the request and its stages."""
    wanted = int(limits["wanted"] or 0)
    count = len(facts.posted) + sum(len(stage.posted) for stage in facts.stages)
    if count < wanted:
        why = f"{count} of {wanted} results were posted by external tools."
        yield Judgement(subject="number of results", outcome=Outcome.UNKNOWN, why=why, value=count, threshold=wanted)
    groups: list[StageFacts | None] = [None, *facts.stages]
    for stage in groups:
        for one in stage.posted if stage else facts.posted:
            numbers = (Number("posted by", one.by), *((Number("where", one.link, one.link),) if one.link else ()))
            yield Judgement(
                stage=stage, subject=one.name, outcome=one.outcome, why=one.why, value=one.value,
                threshold=one.threshold, numbers=numbers,
            )  # fmt: skip
