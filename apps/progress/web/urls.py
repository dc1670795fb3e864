from django.urls import path

from apps.progress.web import views, weekly

app_name = "progress"
urlpatterns = [
    path("jobs/progress/<str:key>/", views.request_progress, name="request-progress"),
    path("reports/requests/<str:key>/", views.report_now, name="request-report"),
    path("reports/weekly/", weekly.weekly_reports, name="weekly-reports"),
    path("reports/weekly/<str:week>/", weekly.week_of_all, name="week-of-all"),
    path("reports/weekly/<str:key>/<str:week>/", weekly.weekly_report, name="weekly-report"),
    path(
        "reports/weekly/<str:key>/<str:week>/campaign/",
        weekly.campaign_week,
        name="week-of-campaign",
    ),
    path("reports/frozen/<str:digest>/", views.frozen_report, name="frozen-report"),
]
