from django.urls import path

from apps.statusboard.web import views

app_name = "statusboard"
# All other pages have at least two parts after services/, so a service may have any slug.
urlpatterns = [
    path("services/", views.status_board, name="board"),
    path("services/incidents/new/", views.report_incident, name="report-incident"),
    path("services/incidents/<int:pk>/", views.incident_detail, name="incident-detail"),
    path("services/incidents/<int:pk>/update/", views.change_incident, name="update-incident"),
    path("services/incidents/<int:pk>/close/", views.end_incident, name="close-incident"),
    path("services/windows/new/", views.schedule_maintenance, name="schedule-window"),
    path("services/windows/<int:pk>/cancel/", views.cancel_maintenance, name="cancel-window"),
    path("services/announcements/new/", views.new_announcement, name="post-announcement"),
    path("services/announcements/<int:pk>/withdraw/", views.retract_announcement, name="withdraw-announcement"),
    path("services/monitoring/sources/", views.sources, name="sources"),
    path("services/monitoring/alerts/<int:pk>/", views.map_alert, name="map-alert"),
    path("services/<slug:slug>/", views.service_detail, name="service-detail"),
]
