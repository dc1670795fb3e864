"""Addresses of what belongs to writing a request, beside its form."""

from django.urls import path

from apps.production import clone_views, discussion_views, exchange_views, history_views, link_views

patterns = [
    path("requests/templates/", clone_views.templates, name="templates"),
    path("requests/templates/<int:number>/rename/", clone_views.rename_template, name="template-rename"),
    path("requests/templates/<int:number>/delete/", clone_views.delete_template, name="template-delete"),
    path("requests/<str:key>/clone/", clone_views.clone, name="request-clone"),
    path("requests/<str:key>/next-names/", clone_views.next_names, name="request-next-names"),
    path("requests/<str:key>/template/", clone_views.make_template, name="template-make"),
    path("requests/import/", exchange_views.import_page, name="request-import"),
    path("requests/<str:key>/yaml/", exchange_views.download, name="request-yaml"),
    path("requests/<str:key>/comment/", discussion_views.comment, name="comment"),
    path("requests/<str:key>/comments/<int:number>/edit/", discussion_views.edit_comment, name="comment-edit"),
    path(
        "requests/<str:key>/comments/<int:number>/<str:verb>/", discussion_views.change_comment, name="comment-change"
    ),
    path("requests/<str:key>/split/", link_views.split, name="request-split"),
    path("requests/<str:key>/combine/", link_views.combine, name="request-combine"),
    path("requests/<str:key>/changes/", history_views.changes, name="request-changes"),
]
