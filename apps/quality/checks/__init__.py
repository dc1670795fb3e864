"""Data quality checks: the interface and the built-in checks."""

from apps.quality.checks.base import (
    Judgement,
    Limit,
    Number,
    QualityCheck,
    quality_check,
    stage_check,
    undetermined,
)
from apps.quality.checks.facts import Facts, Histogram, Posted, StageFacts

__all__ = [
    "Facts",
    "Histogram",
    "Judgement",
    "Limit",
    "Number",
    "Posted",
    "QualityCheck",
    "StageFacts",
    "quality_check",
    "stage_check",
    "undetermined",
]
