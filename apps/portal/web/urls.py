from django.urls import path

from apps.portal.web import views

app_name = "portal"
urlpatterns = [
    path("", views.home, name="home"),
    path("find/", views.search, name="find"),
    path("health/", views.health, name="health"),
    path("metrics", views.metrics, name="metrics"),
    path("jobs/<int:pk>/", views.job, name="job"),
]
