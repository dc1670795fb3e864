from django.urls import path

from apps.core.web import converters  # noqa: F401 -- registers them
from apps.hosts.web import history, probes, views

app_name = "hosts"
urlpatterns = [
    path("excluded-hosts/", views.exclusions, name="exclusions"),
    path("excluded-hosts/new/", views.exclude, name="exclude"),
    path("excluded-hosts/<int:pk>/", views.exclusion, name="exclusion"),
    path("excluded-hosts/<int:pk>/extend/", views.extend, name="extend"),
    path("excluded-hosts/<int:pk>/return/", views.return_to_jobs, name="return"),
    path("probes/", probes.probes, name="probes"),
    path("excluded-hosts/of/<text:name>/", views.of_host, name="of-host"),
    path("excluded-hosts/history/<text:name>/", history.history, name="history"),
]
