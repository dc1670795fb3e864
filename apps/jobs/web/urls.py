from django.urls import path

from apps.jobs.web import statistics, views

app_name = "jobs"
urlpatterns = [
    path("jobs/", views.job_list, name="list"),
    path("jobs/phases/", views.phases, name="phases"),
    path("jobs/flagged/", views.flagged, name="flagged"),
    path("jobs/claims/<str:key>/", views.claims, name="claims"),
    path("jobs/claims/<str:key>/accept/", views.accept_claims, name="accept-claims"),
    path("jobs/claims/<str:key>/withdraw/", views.withdraw_claims, name="withdraw-claims"),
    path("statistics/", statistics.explorer, name="statistics"),
]
