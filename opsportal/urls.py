"""All addresses of the portal."""

from django.contrib import admin
from django.urls import include, path

handler400 = "apps.core.views.bad_request"
handler404 = "apps.core.views.not_found"
handler500 = "apps.core.views.server_error"
urlpatterns = [
    path("", include("apps.core.urls")),
    path("", include("apps.services.urls")),
    path("", include("apps.production.urls")),
    path("", include("apps.jobs.urls")),
    path("", include("apps.portal.urls")),
    path("", include("apps.archive.urls")),
    path("", include("apps.diagnosis.urls")),
    path("", include("apps.quality.urls")),
    path("", include("apps.notifications.urls")),
    path("", include("apps.submission.urls")),
    path("accounts/", include("apps.accounts.urls")),
    path("api/v1/", include("apps.api.urls")),
    path("admin/", admin.site.urls),
]
