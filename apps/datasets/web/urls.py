from django.urls import path

from apps.datasets.web import views

app_name = "datasets"
# The name of a dataset is a parameter of the query: it may have slashes, dots and colons.
urlpatterns = [
    path("datasets/", views.dataset_list, name="list"),
    path("datasets/dataset/", views.dataset, name="dataset"),
]
