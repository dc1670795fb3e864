from django.urls import path

from apps.production.web.views import (
    approvals,
    campaigns,
    checks,
    desk,
    discussion,
    exchange,
    form,
    holds,
    known,
    lineage,
    queue,
    requests,
    start,
    templates,
    types,
)

app_name = "production"
urlpatterns = [
    path("requests/inbox/", approvals.inbox, name="inbox"),
    path("requests/inbox/desk/", desk.desk, name="desk"),
    path("requests/inbox/desk/approve/", desk.approve_several, name="desk-approve"),
    path("requests/inbox/desk/<str:key>/<str:verb>/", desk.decide, name="desk-decide"),
    path("requests/inbox/hand-over/", approvals.create_delegation, name="hand-over"),
    path("requests/inbox/delegations/<int:pk>/revoke/", approvals.revoke, name="delegation-revoke"),
    path(
        "requests/<str:key>/signatures/<int:pk>/withdraw/",
        approvals.withdraw_signature,
        name="signature-withdraw",
    ),
    path("requests/templates/", templates.templates, name="templates"),
    path(
        "requests/templates/<int:number>/rename/", templates.rename_template, name="template-rename"
    ),
    path(
        "requests/templates/<int:number>/delete/", templates.delete_template, name="template-delete"
    ),
    path("requests/<str:key>/clone/", templates.clone, name="request-clone"),
    path("requests/<str:key>/template/", templates.make_template, name="template-make"),
    path("requests/import/", exchange.import_page, name="request-import"),
    path("requests/<str:key>/yaml/", exchange.download, name="request-yaml"),
    path("requests/<str:key>/comment/", discussion.comment, name="comment"),
    path(
        "requests/<str:key>/comments/<int:number>/edit/",
        discussion.edit_comment,
        name="comment-edit",
    ),
    path(
        "requests/<str:key>/comments/<int:number>/<str:verb>/",
        discussion.change_comment,
        name="comment-change",
    ),
    path("requests/<str:key>/split/", lineage.split, name="request-split"),
    path("requests/<str:key>/combine/", lineage.combine, name="request-combine"),
    path("requests/<str:key>/changes/", requests.changes, name="request-changes"),
    path("requests/", requests.request_list, name="request-list"),
    path("requests/campaigns/", campaigns.campaigns, name="campaigns"),
    path("requests/queue/", queue.queue, name="queue"),
    path("requests/queue/<str:key>/move/", queue.move, name="queue-move"),
    path("requests/queue/<str:key>/priority/", queue.prioritise, name="queue-priority"),
    path("requests/queue/<str:key>/undo/", queue.undo, name="queue-undo"),
    path("requests/shares/", queue.share_page, name="shares"),
    path("requests/workflows/", types.workflow_list, name="workflows"),
    path("requests/workflows/<slug:key>/", types.workflow_page, name="workflow"),
    path("requests/holds/", holds.hold_list, name="holds"),
    path("requests/holds/<int:pk>/lift/", holds.lift, name="hold-lift"),
    path("requests/checks/", checks.rule_list, name="rules"),
    path("requests/new/check/", checks.check_new, name="check-new"),
    path("requests/<str:key>/check/", checks.check_typed, name="check-typed"),
    path("requests/known/", known.known, name="known"),
    path("requests/start/", start.start, name="request-start"),
    path("requests/new/", form.new_request, name="request-new"),
    path("requests/<str:key>/edit/", form.edit_request, name="request-edit"),
]
