from django.urls import path

from apps.core.web import views

app_name = "core"
urlpatterns = [
    path("healthz", views.healthz, name="healthz"),
    path("readyz", views.readyz, name="readyz"),
]
