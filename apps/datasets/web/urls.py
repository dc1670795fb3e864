from django.urls import path

from apps.datasets.web import making, staging, views

app_name = "datasets"
# The name of a dataset is a parameter of the query: it may have slashes, dots and colons.
urlpatterns = [
    path("datasets/", views.dataset_list, name="list"),
    path("datasets/dataset/", views.dataset, name="dataset"),
    path("datasets/make/<str:key>/", making.make, name="make"),
    path("staging/<str:key>/", staging.stage, name="stage"),
    path("staging/<str:key>/ask/", staging.ask, name="stage-ask"),
    path("staging/<str:key>/cancel/", staging.cancel, name="stage-cancel"),
]
