from django.urls import path

from apps.jobs.web import views

app_name = "jobs"
urlpatterns = [
    path("jobs/", views.job_list, name="list"),
    path("reports/", views.reports, name="reports"),
]
