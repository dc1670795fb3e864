from django.urls import path

from apps.core.web import converters  # noqa: F401 -- registers them
from apps.jobs.web import archived_jobs, slices, statistics, views

app_name = "jobs"
urlpatterns = [
    path("jobs/", views.job_list, name="list"),
    path("jobs/archived/", archived_jobs.archived_jobs, name="archived"),
    path("jobs/phases/", views.phases, name="phases"),
    path("jobs/flagged/", views.flagged, name="flagged"),
    path("jobs/claims/<str:key>/", views.claims, name="claims"),
    path("jobs/claims/<str:key>/accept/", views.accept_claims, name="accept-claims"),
    path("jobs/claims/<str:key>/withdraw/", views.withdraw_claims, name="withdraw-claims"),
    path("statistics/", statistics.explorer, name="statistics"),
    path("hosts/<text:name>/rate/", slices.host_rate, name="host-rate"),
    path("hosts/<text:name>/", slices.show_slice, {"kind": "host"}, name="host"),
    path("sites/<text:name>/", slices.show_slice, {"kind": "site"}, name="site"),
    path("users/<text:name>/", slices.show_slice, {"kind": "user"}, name="user"),
]
