"""Models of diagnosis, by subject."""

from apps.diagnosis.models.causes import CauseAnalysis
from apps.diagnosis.models.completed_logs import CompletedLog
from apps.diagnosis.models.exit_codes import ExitCodeMeaning
from apps.diagnosis.models.known_errors import (
    CatalogueState,
    KnownError,
    KnownErrorChange,
    KnownErrorOmission,
)
from apps.diagnosis.models.packs import ExperimentPack
from apps.diagnosis.models.posted_logs import PostedLog
from apps.diagnosis.models.reclassification import Reclassification
from apps.diagnosis.models.success_samples import SuccessSample
from apps.diagnosis.models.totals import CauseTotals, DailyCauseTotals
from apps.diagnosis.models.verdicts import (
    DirtyImpact,
    Evidence,
    FailureGroup,
    GroupNote,
    Impact,
    ImpactGroup,
    LogExcerpt,
    LogHarvest,
    Verdict,
    VerdictQuerySet,
)

__all__ = [
    "CatalogueState",
    "CauseAnalysis",
    "CauseTotals",
    "CompletedLog",
    "DailyCauseTotals",
    "DirtyImpact",
    "Evidence",
    "ExitCodeMeaning",
    "ExperimentPack",
    "FailureGroup",
    "GroupNote",
    "Impact",
    "ImpactGroup",
    "KnownError",
    "KnownErrorChange",
    "KnownErrorOmission",
    "LogExcerpt",
    "LogHarvest",
    "PostedLog",
    "Reclassification",
    "SuccessSample",
    "Verdict",
    "VerdictQuerySet",
]
