from django.urls import path

from apps.portal.web import (
    experiment_messages,
    hand_over,
    incidents,
    live_jobs,
    requests,
    search_feed,
    services,
    views,
)

app_name = "portal"
urlpatterns = [
    path("", views.home, name="home"),
    path("hand-over/", hand_over.hand_over, name="hand-over"),
    path("find/", views.search, name="find"),
    path("search/", views.text_search, name="text-search"),
    path("feeds/<str:token>/search.atom", search_feed.feed, name="search-feed"),
    path("health/", views.health, name="health"),
    path("health/storage/", views.storage, name="storage"),
    path("metrics", views.metrics, name="metrics"),
    path("jobs/live/", live_jobs.live_jobs, name="live-jobs"),
    path("jobs/<int:pk>/", views.job, name="job"),
    path(
        "notify/<slug:kind>/<int:pk>/",
        experiment_messages.notify,
        name="notify-experiment",
    ),
    path("services/incidents/<int:pk>/", incidents.incident_detail, name="incident"),
    path(
        "services/incidents/<int:pk>/<slug:verb>/", incidents.act_on_incident, name="incident-act"
    ),
    path("services/<slug:slug>/", services.service_detail, name="service"),
    # After the pages of production, which have the same prefix.
    path("requests/<str:key>/", requests.request_detail, name="request"),
    path("requests/<str:key>/priority/", requests.prioritise, name="request-priority"),
    path("requests/<str:key>/reschedule/", requests.reschedule_request, name="request-reschedule"),
    path("requests/<str:key>/<str:verb>/", requests.move_request, name="request-move"),
]
