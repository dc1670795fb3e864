from django.urls import path

from apps.statusboard.web import exports, sources, views
from apps.statusboard.web.calendar import calendar

app_name = "statusboard"
# All pages have at least two path components after services/: `services/<slug>/` is the page of a
# service, which belongs to the app `portal`.
urlpatterns = [
    path("services/", views.status_board, name="board"),
    path("services/windows/calendar/", calendar, name="calendar"),
    path("services/incidents/new/", views.report_incident, name="report-incident"),
    path("services/windows/new/", views.schedule_maintenance, name="schedule-window"),
    path("services/windows/<int:pk>/cancel/", views.cancel_maintenance, name="cancel-window"),
    path("services/announcements/new/", views.new_announcement, name="post-announcement"),
    path(
        "services/announcements/<int:pk>/read/", views.read_announcement, name="read-announcement"
    ),
    path("services/announcements/<int:pk>/pin/", views.pin, name="pin-announcement"),
    path(
        "services/announcements/<int:pk>/withdraw/",
        views.retract_announcement,
        name="withdraw-announcement",
    ),
    path("services/monitoring/sources/", views.sources, name="sources"),
    path("services/status/", exports.public_board, name="public-board"),
    path("services/status/feed.atom", exports.incidents_feed, name="status-feed"),
    path("services/status/summary.json", exports.summary, name="status-summary"),
    path("services/status/maintenance.ics", exports.windows_calendar, name="status-calendar"),
    path("services/status/badge.svg", exports.status_badge, name="status-badge"),
    # As specified by the DOE IRI API: without a trailing slash.
    path(
        "services/iri/status/resources",
        exports.iri_objects,
        {"kind": "resources"},
        name="iri-resources",
    ),
    path(
        "services/iri/status/resources/<str:key>",
        exports.iri_objects,
        {"kind": "resources"},
        name="iri-resource",
    ),
    path(
        "services/iri/status/incidents",
        exports.iri_objects,
        {"kind": "incidents"},
        name="iri-incidents",
    ),
    path(
        "services/iri/status/incidents/<str:key>",
        exports.iri_objects,
        {"kind": "incidents"},
        name="iri-incident",
    ),
    path("services/iri/status/events", exports.iri_objects, {"kind": "events"}, name="iri-events"),
    path(
        "services/iri/status/events/<str:key>",
        exports.iri_objects,
        {"kind": "events"},
        name="iri-event",
    ),
    path("services/monitoring/sources/new/", sources.new_source, name="source-new"),
    path("services/monitoring/sources/<slug:slug>/", sources.source, name="source"),
    path("services/monitoring/sources/<slug:slug>/token/", sources.new_token, name="source-token"),
    path(
        "services/monitoring/sources/<slug:slug>/mapping/", sources.mapping, name="source-mapping"
    ),
    path("services/monitoring/alerts/<int:pk>/", views.map_alert, name="map-alert"),
]
