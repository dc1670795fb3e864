from django.urls import path

from apps.progress.web import views

app_name = "progress"
urlpatterns = [
    path("jobs/progress/<str:key>/", views.request_progress, name="request-progress"),
    path("reports/requests/<str:key>/", views.report_now, name="request-report"),
    path("reports/frozen/<str:digest>/", views.frozen_report, name="frozen-report"),
]
