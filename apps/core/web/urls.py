from django.urls import path

from apps.core.web import styleguide, views

app_name = "core"
urlpatterns = [
    path("healthz", views.healthz, name="healthz"),
    path("readyz", views.readyz, name="readyz"),
    path("styleguide/", styleguide.styleguide, name="styleguide"),
]
