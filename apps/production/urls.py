from django.urls import path

from apps.production import approval_urls, check_views, form_urls, form_views, hold_views, views, workflow_views
from apps.production.priority import views as priority_views

app_name = "production"
urlpatterns = [
    *approval_urls.patterns,
    *form_urls.patterns,
    path("requests/", views.request_list, name="request-list"),
    path("requests/queue/", priority_views.queue, name="queue"),
    path("requests/queue/<str:key>/move/", priority_views.move, name="queue-move"),
    path("requests/queue/<str:key>/undo/", priority_views.undo, name="queue-undo"),
    path("requests/shares/", priority_views.share_page, name="shares"),
    path("requests/workflows/", workflow_views.workflow_list, name="workflows"),
    path("requests/workflows/<slug:key>/", workflow_views.workflow_page, name="workflow"),
    path("requests/holds/", hold_views.hold_list, name="holds"),
    path("requests/holds/<int:pk>/lift/", hold_views.lift, name="hold-lift"),
    path("requests/checks/", check_views.rule_list, name="rules"),
    path("requests/new/check/", check_views.check_new, name="check-new"),
    path("requests/<str:key>/check/", check_views.check_typed, name="check-typed"),
    path("requests/new/", form_views.new_request, name="request-new"),
    path("requests/<str:key>/", views.request_detail, name="request-detail"),
    path("requests/<str:key>/edit/", form_views.edit_request, name="request-edit"),
    path("requests/<str:key>/priority/", views.prioritise, name="request-priority"),
    path("requests/<str:key>/<str:verb>/", views.move_request, name="request-move"),
]
