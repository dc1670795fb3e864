from django.contrib.auth.decorators import login_not_required
from django.urls import include, path
from rest_framework.routers import DefaultRouter

from apps.accounts.api import SavedViewViewSet
from apps.api.views import IndexView, SchemaView, VersionView, reference
from apps.archive.api.capture import ReceiveBatch, Report
from apps.archive.api.jobs import ArchivedJobViewSet
from apps.datasets.api.making import MadeDatasetViewSet
from apps.datasets.api.staging import StagingViewSet
from apps.datasets.api.views import DatasetViewSet
from apps.diagnosis.api.causes import CausesView
from apps.diagnosis.api.impact import ImpactView
from apps.diagnosis.api.known_errors import KnownErrorChangeViewSet, KnownErrorViewSet
from apps.diagnosis.api.line_watches import LineWatchViewSet
from apps.diagnosis.api.packs import ExperimentPackViewSet
from apps.diagnosis.api.posted_logs import PostedLogsView
from apps.diagnosis.api.views import GroupViewSet, JobLogView, VerdictViewSet
from apps.diagnosis.api.where_else import NewLinesView, WhereElseView
from apps.hosts.api.history import HostHistoryViewSet
from apps.hosts.api.probes import MeasuredStateViewSet, ProbeResultsView
from apps.hosts.api.views import HostExclusionViewSet
from apps.jobs.api.archived_jobs import JobHistoryViewSet
from apps.jobs.api.phases import PhasesView, PhaseTokensView
from apps.jobs.api.views import ClaimViewSet, JobRecordsView, JobViewSet, StatisticsView
from apps.notifications.api.views import (
    FeedsView,
    FollowView,
    NotificationViewSet,
    PreferencesView,
    WebhookViewSet,
)
from apps.production.api.activity import RuleListView
from apps.production.api.advice import AdviceView
from apps.production.api.approvals import DelegationViewSet, InboxViewSet
from apps.production.api.campaigns import CampaignsView
from apps.production.api.checks import CheckRequest, EstimateRequest
from apps.production.api.discussion import CommentViewSet
from apps.production.api.holds import HoldViewSet
from apps.production.api.outputs import Located
from apps.production.api.queue import QueueViewSet, SharesPreview, SharesView
from apps.production.api.requests import RequestViewSet
from apps.production.api.templates import TemplateViewSet
from apps.production.api.types import WorkflowViewSet
from apps.progress.api import ProgressViewSet, RequestReportViewSet, WeeklyReportViewSet
from apps.quality.api.views import QualityViewSet
from apps.recovery.api.views import RecoveryDecisionViewSet, RecoveryRuleViewSet
from apps.search.api.views import TextSearchView
from apps.statusboard.api.views import (
    AnnouncementViewSet,
    HandOverNoteViewSet,
    IncidentViewSet,
    ServiceViewSet,
    WindowViewSet,
    receive_feed,
)
from apps.submission.api.debugging import DebugRunViewSet
from apps.submission.api.files import FilesViewSet
from apps.submission.api.output_files import JobFilesView, Outputs
from apps.submission.api.retries import RetryBatchViewSet
from apps.submission.api.views import SubmissionViewSet

app_name = "api"
router = DefaultRouter()
router.include_root_view = False
router.include_format_suffixes = False
router.register("services", ServiceViewSet, basename="service")
router.register("incidents", IncidentViewSet, basename="incident")
router.register("windows", WindowViewSet, basename="window")
router.register("announcements", AnnouncementViewSet, basename="announcement")
router.register("hand-over-notes", HandOverNoteViewSet, basename="hand-over-note")
router.register("requests", RequestViewSet, basename="request")
router.register(r"requests/(?P<key>[^/.]+)/comments", CommentViewSet, basename="comment")
router.register("templates", TemplateViewSet, basename="template")
router.register("inbox", InboxViewSet, basename="inbox")
router.register("delegations", DelegationViewSet, basename="delegation")
router.register("workflow-types", WorkflowViewSet, basename="workflow-type")
router.register("saved-views", SavedViewViewSet, basename="saved-view")
router.register("holds", HoldViewSet, basename="hold")
router.register("queue", QueueViewSet, basename="queue")
router.register("progress", ProgressViewSet, basename="progress")
router.register("submissions", SubmissionViewSet, basename="submission")
router.register("files", FilesViewSet, basename="files")
router.register("made-datasets", MadeDatasetViewSet, basename="made-dataset")
router.register("staging", StagingViewSet, basename="staging")
router.register("notifications", NotificationViewSet, basename="notification")
router.register("webhooks", WebhookViewSet, basename="webhook")
router.register("quality", QualityViewSet, basename="quality")
router.register("jobs", JobViewSet, basename="job")
router.register("job-history", JobHistoryViewSet, basename="job-history")
router.register("claims", ClaimViewSet, basename="claim")
router.register("datasets", DatasetViewSet, basename="dataset")
router.register("archive", ArchivedJobViewSet, basename="archived-job")
router.register("request-reports", RequestReportViewSet, basename="request-report")
router.register("weekly-reports", WeeklyReportViewSet, basename="weekly-report")
router.register("failure-groups", GroupViewSet, basename="failure-group")
router.register("known-errors", KnownErrorViewSet, basename="known-error")
router.register("experiment-packs", ExperimentPackViewSet, basename="experiment-pack")
router.register("known-error-changes", KnownErrorChangeViewSet, basename="change-of-known-error")
router.register("line-watches", LineWatchViewSet, basename="line-watch")
router.register("hosts/exclusions", HostExclusionViewSet, basename="host-exclusion")
router.register("hosts/history", HostHistoryViewSet, basename="host-history")
router.register("hosts/measured-states", MeasuredStateViewSet, basename="measured-state")
router.register("recovery-rules", RecoveryRuleViewSet, basename="recovery-rule")
router.register("recovery-decisions", RecoveryDecisionViewSet, basename="recovery-decision")
router.register("verdicts", VerdictViewSet, basename="verdict")
router.register("retry-batches", RetryBatchViewSet, basename="retry-batch")
router.register("debug-runs", DebugRunViewSet, basename="debug-run")

urlpatterns = [
    path("", IndexView.as_view(), name="index"),
    path("reference/", reference, name="reference"),
    path("requests/check/", CheckRequest.as_view(), name="request-check"),
    path("requests/estimate/", EstimateRequest.as_view(), name="request-estimate"),
    path("shares/", SharesView.as_view(), name="shares"),
    path("shares/what-if/", SharesPreview.as_view(), name="shares-what-if"),
    path("", include(router.urls)),
    path(
        "requests/<str:key>/stages/<int:number>/outputs/", Outputs.as_view(), name="stage-outputs"
    ),
    path(
        "requests/<str:key>/stages/<int:number>/located/", Located.as_view(), name="stage-located"
    ),
    path("requests/<str:key>/follow/", FollowView.as_view(), name="request-follow"),
    path("campaigns/", CampaignsView.as_view(), name="campaigns"),
    path("causes/", CausesView.as_view(), name="causes"),
    path("where-else/", WhereElseView.as_view(), name="where-else"),
    path("new-lines/", NewLinesView.as_view(), name="new-lines"),
    path("incidents/<int:pk>/impact/", ImpactView.as_view(), name="incident-impact"),
    path("advice/", AdviceView.as_view(), name="advice"),
    path("checks/", RuleListView.as_view(), name="rules"),
    path("jobs/<int:pk>/log/", JobLogView.as_view(), name="job-log"),
    path("notification-preferences/", PreferencesView.as_view(), name="notification-preferences"),
    path("feed-addresses/", FeedsView.as_view(), name="feed-addresses"),
    path("feeds/<slug:slug>/", receive_feed, name="feed"),
    path("capture/batches/", ReceiveBatch.as_view(), name="capture-batches"),
    path("capture/report/", Report.as_view(), name="capture-report"),
    path("schema/", login_not_required(SchemaView.as_view()), name="schema"),
    path("hosts/probe-results/", ProbeResultsView.as_view(), name="probe-results"),
    path("phases/", PhasesView.as_view(), name="phases"),
    path("job-files/", JobFilesView.as_view(), name="job-files"),
    path("job-logs/", PostedLogsView.as_view(), name="job-logs"),
    path("phases/tokens/", PhaseTokensView.as_view(), name="phase-tokens"),
    path("job-records/", JobRecordsView.as_view(), name="job-records"),
    path("search/", TextSearchView.as_view(), name="search"),
    path("statistics/", StatisticsView.as_view(), name="statistics"),
    path("version/", VersionView.as_view(), name="version"),
]
