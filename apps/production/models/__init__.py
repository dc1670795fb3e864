"""All models of production, by subject."""

from apps.production.models.approvals import (
    REMIND_AFTER_DAYS,
    ApprovalGroup,
    ApprovalRule,
    Delegation,
    Reminder,
    Signature,
)
from apps.production.models.discussion import Comment
from apps.production.models.estimates import StageHistory
from apps.production.models.holds import Hold
from apps.production.models.lineage import RequestLink, RequestTemplate, TemplateQuerySet
from apps.production.models.outputs import (
    DatasetPart,
    OutputReport,
    StageAcceptance,
    StageCounts,
    StageLocation,
)
from apps.production.models.queue import (
    DEFAULT_WEIGHT,
    MAX_WEIGHT,
    ExperimentShare,
    QueueEntry,
    QueueState,
    ShareUse,
)
from apps.production.models.requests import (
    MAX_PRIORITY,
    MIN_PRIORITY,
    Attention,
    FormKey,
    Request,
    RequestCounter,
    RequestQuerySet,
    RequestRevision,
    Stage,
)
from apps.production.models.types import WorkflowType, WorkflowVersion
