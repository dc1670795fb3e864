from django.urls import path

from apps.statusboard.web import exports, sources, views
from apps.statusboard.web.calendar import calendar

app_name = "statusboard"
# All pages have at least two parts after services/: the page of a service, which is the portal's, has any slug.
urlpatterns = [
    path("services/", views.status_board, name="board"),
    path("services/windows/calendar/", calendar, name="calendar"),
    path("services/incidents/new/", views.report_incident, name="report-incident"),
    path("services/windows/new/", views.schedule_maintenance, name="schedule-window"),
    path("services/windows/<int:pk>/cancel/", views.cancel_maintenance, name="cancel-window"),
    path("services/announcements/new/", views.new_announcement, name="post-announcement"),
    path("services/announcements/<int:pk>/withdraw/", views.retract_announcement, name="withdraw-announcement"),
    path("services/monitoring/sources/", views.sources, name="sources"),
    path("services/status/summary.json", exports.summary, name="status-summary"),
    path("services/status/maintenance.ics", exports.windows_calendar, name="status-calendar"),
    path("services/status/badge.svg", exports.status_badge, name="status-badge"),
    path("services/monitoring/sources/new/", sources.new_source, name="source-new"),
    path("services/monitoring/sources/<slug:slug>/token/", sources.new_token, name="source-token"),
    path("services/monitoring/sources/<slug:slug>/mapping/", sources.mapping, name="source-mapping"),
    path("services/monitoring/alerts/<int:pk>/", views.map_alert, name="map-alert"),
]
