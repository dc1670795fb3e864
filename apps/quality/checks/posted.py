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
    required = int(limits["wanted"] or 0)
    count = len(stage.histograms)
    if count < required:
        why = f"{count} of {required} histograms were posted."
        missing = undetermined(why, subject="number of histograms")
        yield replace(missing, value=count, threshold=required)

    for histogram in stage.histograms:
        yield replace(_compare(histogram, limits), subject=histogram.name)


def _compare(histogram: Histogram, limits: Limits) -> Judgement:
    entries = (sum(histogram.reference), sum(histogram.observed))
    numbers: tuple[Number, ...] = (
        Number("entries of the reference", entries[0]),
        Number("entries observed", entries[1], histogram.link),
        Number("posted by", histogram.by),
    )
    if min(entries) < (limits["least_entries"] or 0) or min(entries) <= 0:
        why = (
            f"Too few entries to compare: {entries[1]:,.0f} observed, {entries[0]:,.0f} in the "
            "reference."
        )
        return undetermined(why, numbers)
    chi2, freedom = chi_square(histogram.reference, histogram.observed)
    probability = chi_square_probability(chi2, freedom)
    distance = kolmogorov_distance(histogram.reference, histogram.observed)
    numbers += (
        Number("chi²", round(chi2, 4)),
        Number("degrees of freedom", freedom),
        Number("probability of chi²", float(f"{probability:.4g}")),
        Number("Kolmogorov distance", round(distance, 6)),
    )
    value = float(f"{probability:.6g}")
    unit = "probability"
    outcome, threshold = below(
        probability, warn=limits["warn_probability"], fail=limits["least_probability"]
    )
    by_distance, most = above(distance, warn=None, fail=limits["most_distance"])
    if by_distance is Outcome.FAILED:
        outcome = by_distance
        value = distance
        threshold = most
        unit = "distance"
    why = (
        f"chi² is {chi2:.4g} of {freedom} degrees of freedom, probability {probability:.3g}; "
        f"distance {distance:.3g}."
    )
    return Judgement(
        outcome=outcome, why=why, value=value, threshold=threshold, unit=unit, numbers=numbers
    )


@quality_check(
    "Results of external tools",
    Limit("wanted", 0, "Number of results required for the request."),
)
def external(facts: Facts, limits: Limits) -> Iterator[Judgement]:
    """Results posted by external tools for the request and its stages."""
    required = int(limits["wanted"] or 0)
    count = len(facts.posted) + sum(len(stage.posted) for stage in facts.stages)
    if count < required:
        why = f"{count} of {required} results were posted by external tools."
        yield Judgement(
            subject="number of results",
            outcome=Outcome.UNKNOWN,
            why=why,
            value=count,
            threshold=required,
        )
    groups: list[StageFacts | None] = [None, *facts.stages]
    for stage in groups:
        for result in stage.posted if stage else facts.posted:
            numbers: tuple[Number, ...] = (Number("posted by", result.by),)
            if result.link:
                numbers += (Number("where", result.link, result.link),)
            yield Judgement(
                stage=stage,
                subject=result.name,
                outcome=result.outcome,
                why=result.why,
                value=result.value,
                threshold=result.threshold,
                numbers=numbers,
            )
