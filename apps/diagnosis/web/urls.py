from django.urls import path

from apps.diagnosis.web import views

app_name = "diagnosis"
urlpatterns = [
    path("jobs/<int:pk>/verdict/", views.verdict, name="verdict"),
    path("jobs/<int:pk>/verdict/correct/", views.correct_verdict, name="correct-verdict"),
    path("jobs/<int:pk>/verdict/again/", views.harvest_again, name="harvest-again"),
    path("jobs/<int:pk>/log/", views.log, name="log"),
    path("failures/", views.failures, name="failures"),
    path("failures/jobs/", views.failed_jobs, name="failed-jobs"),
]
