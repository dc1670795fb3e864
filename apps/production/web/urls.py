from django.urls import path

from apps.production import approval_urls, form_urls
from apps.production.web.views import checks, form, holds, requests, types
from apps.production.web.views import queue as priority_views

app_name = "production"
urlpatterns = [
    *approval_urls.patterns,
    *form_urls.patterns,
    path("requests/", requests.request_list, name="request-list"),
    path("requests/queue/", priority_views.queue, name="queue"),
    path("requests/queue/<str:key>/move/", priority_views.move, name="queue-move"),
    path("requests/queue/<str:key>/undo/", priority_views.undo, name="queue-undo"),
    path("requests/shares/", priority_views.share_page, name="shares"),
    path("requests/workflows/", types.workflow_list, name="workflows"),
    path("requests/workflows/<slug:key>/", types.workflow_page, name="workflow"),
    path("requests/holds/", holds.hold_list, name="holds"),
    path("requests/holds/<int:pk>/lift/", holds.lift, name="hold-lift"),
    path("requests/checks/", checks.rule_list, name="rules"),
    path("requests/new/check/", checks.check_new, name="check-new"),
    path("requests/<str:key>/check/", checks.check_typed, name="check-typed"),
    path("requests/new/", form.new_request, name="request-new"),
    path("requests/<str:key>/", requests.request_detail, name="request-detail"),
    path("requests/<str:key>/edit/", form.edit_request, name="request-edit"),
    path("requests/<str:key>/priority/", requests.prioritise, name="request-priority"),
    path("requests/<str:key>/<str:verb>/", requests.move_request, name="request-move"),
]
