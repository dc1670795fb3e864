from django.contrib.auth.decorators import login_not_required
from django.urls import include, path
from rest_framework.routers import DefaultRouter

from apps.api.schema_view import SchemaView
from apps.archive.api_views import ArchivedJobViewSet
from apps.archive.capture_api import ReceiveJobs, Report
from apps.diagnosis.api_views import VerdictViewSet
from apps.diagnosis.report_api import RequestReportViewSet
from apps.jobs.api_views import JobViewSet
from apps.jobs.progress_api import ProgressViewSet
from apps.notifications.api_views import (
    FeedsView,
    FollowView,
    NotificationViewSet,
    PreferencesView,
    WebhookViewSet,
)
from apps.production.api_views import RequestViewSet
from apps.production.approval_api import DelegationViewSet, InboxViewSet
from apps.production.check_api import CheckRequest, EstimateRequest
from apps.production.clone_api import TemplateViewSet
from apps.production.count_api import Located, Outputs
from apps.production.discussion_api import CommentViewSet
from apps.production.history_api import Rules
from apps.production.hold_api import HoldViewSet
from apps.production.priority.api import QueueViewSet, SharesPreview, SharesView
from apps.production.workflow_api import WorkflowViewSet
from apps.quality.api_views import QualityViewSet
from apps.services.api_views import (
    AnnouncementViewSet,
    IncidentViewSet,
    ServiceViewSet,
    WindowViewSet,
    receive_feed,
)
from apps.submission.api_views import SubmissionViewSet

app_name = "api"
router = DefaultRouter()
router.include_root_view = False
router.include_format_suffixes = False
router.register("services", ServiceViewSet, basename="service")
router.register("incidents", IncidentViewSet, basename="incident")
router.register("windows", WindowViewSet, basename="window")
router.register("announcements", AnnouncementViewSet, basename="announcement")
router.register("requests", RequestViewSet, basename="request")
router.register(r"requests/(?P<key>[^/.]+)/comments", CommentViewSet, basename="comment")
router.register("templates", TemplateViewSet, basename="template")
router.register("inbox", InboxViewSet, basename="inbox")
router.register("delegations", DelegationViewSet, basename="delegation")
router.register("workflow-types", WorkflowViewSet, basename="workflow-type")
router.register("holds", HoldViewSet, basename="hold")
router.register("queue", QueueViewSet, basename="queue")
router.register("progress", ProgressViewSet, basename="progress")
router.register("submissions", SubmissionViewSet, basename="submission")
router.register("notifications", NotificationViewSet, basename="notification")
router.register("webhooks", WebhookViewSet, basename="webhook")
router.register("quality", QualityViewSet, basename="quality")
router.register("jobs", JobViewSet, basename="job")
router.register("archive", ArchivedJobViewSet, basename="archived-job")
router.register("request-reports", RequestReportViewSet, basename="request-report")
router.register("verdicts", VerdictViewSet, basename="verdict")

urlpatterns = [
    path("requests/check/", CheckRequest.as_view(), name="request-check"),
    path("requests/estimate/", EstimateRequest.as_view(), name="request-estimate"),
    path("shares/", SharesView.as_view(), name="shares"),
    path("shares/what-if/", SharesPreview.as_view(), name="shares-what-if"),
    path("", include(router.urls)),
    path("requests/<str:key>/stages/<int:number>/outputs/", Outputs.as_view(), name="stage-outputs"),
    path("requests/<str:key>/stages/<int:number>/located/", Located.as_view(), name="stage-located"),
    path("requests/<str:key>/follow/", FollowView.as_view(), name="request-follow"),
    path("checks/", Rules.as_view(), name="rules"),
    path("notification-preferences/", PreferencesView.as_view(), name="notification-preferences"),
    path("feed-addresses/", FeedsView.as_view(), name="feed-addresses"),
    path("feeds/<slug:slug>/", receive_feed, name="feed"),
    path("capture/jobs/", ReceiveJobs.as_view(), name="capture-jobs"),
    path("capture/report/", Report.as_view(), name="capture-report"),
    path("schema/", login_not_required(SchemaView.as_view()), name="schema"),
]
