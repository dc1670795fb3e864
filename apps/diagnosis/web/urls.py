from django.urls import path

from apps.diagnosis.web import report_views, views

app_name = "diagnosis"
urlpatterns = [
    path("jobs/<int:pk>/verdict/", views.verdict, name="verdict"),
    path("jobs/<int:pk>/verdict/correct/", views.correct_verdict, name="correct-verdict"),
    path("jobs/<int:pk>/verdict/again/", views.harvest_again, name="harvest-again"),
    path("jobs/<int:pk>/log/", views.log, name="log"),
    path("reports/requests/<str:key>/", report_views.report_now, name="request-report"),
    path("reports/frozen/<str:digest>/", report_views.frozen_report, name="frozen-report"),
    path("failures/", views.failures, name="failures"),
    path("failures/jobs/", views.failed_jobs, name="failed-jobs"),
]
