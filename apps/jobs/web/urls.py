from django.urls import path

from apps.jobs.web import views

app_name = "jobs"
urlpatterns = [
    path("jobs/", views.job_list, name="list"),
    path("jobs/progress/<str:key>/", views.request_progress, name="request-progress"),
    path("reports/", views.reports, name="reports"),
]
