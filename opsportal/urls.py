"""The root URL configuration of the portal."""

from django.contrib import admin
from django.urls import include, path

admin.autodiscover()

handler400 = "apps.core.web.views.bad_request"
handler404 = "apps.core.web.views.not_found"
handler500 = "apps.core.web.views.server_error"
urlpatterns = [
    path("", include("apps.core.web.urls")),
    path("", include("apps.statusboard.web.urls")),
    path("", include("apps.production.web.urls")),
    path("", include("apps.jobs.web.urls")),
    path("", include("apps.portal.web.urls")),
    path("", include("apps.datasets.web.urls")),
    path("", include("apps.archive.web.urls")),
    path("", include("apps.diagnosis.web.urls")),
    path("", include("apps.progress.web.urls")),
    path("", include("apps.quality.web.urls")),
    path("", include("apps.notifications.web.urls")),
    path("", include("apps.hosts.web.urls")),
    path("", include("apps.submission.web.urls")),
    path("", include("apps.recovery.web.urls")),
    path("accounts/", include("apps.accounts.web.urls")),
    path("api/v1/", include("apps.api.urls")),
    path("admin/", admin.site.urls),
]
