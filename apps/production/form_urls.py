"""Addresses of what belongs to writing a request, beside its form."""

from django.urls import path

from apps.production.web.views import discussion, exchange, history, lineage, templates

patterns = [
    path("requests/templates/", templates.templates, name="templates"),
    path("requests/templates/<int:number>/rename/", templates.rename_template, name="template-rename"),
    path("requests/templates/<int:number>/delete/", templates.delete_template, name="template-delete"),
    path("requests/<str:key>/clone/", templates.clone, name="request-clone"),
    path("requests/<str:key>/next-names/", templates.next_names, name="request-next-names"),
    path("requests/<str:key>/template/", templates.make_template, name="template-make"),
    path("requests/import/", exchange.import_page, name="request-import"),
    path("requests/<str:key>/yaml/", exchange.download, name="request-yaml"),
    path("requests/<str:key>/comment/", discussion.comment, name="comment"),
    path("requests/<str:key>/comments/<int:number>/edit/", discussion.edit_comment, name="comment-edit"),
    path("requests/<str:key>/comments/<int:number>/<str:verb>/", discussion.change_comment, name="comment-change"),
    path("requests/<str:key>/split/", lineage.split, name="request-split"),
    path("requests/<str:key>/combine/", lineage.combine, name="request-combine"),
    path("requests/<str:key>/changes/", history.changes, name="request-changes"),
]
