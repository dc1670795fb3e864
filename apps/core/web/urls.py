from django.urls import path

from apps.core.web import documentation, styleguide, views

app_name = "core"
urlpatterns = [
    path("healthz", views.healthz, name="healthz"),
    path("readyz", views.readyz, name="readyz"),
    path("help/", documentation.contents, name="help-contents"),
    path("help/<slug:document>/", documentation.help_page, name="help"),
    path("styleguide/", styleguide.styleguide, name="styleguide"),
]
