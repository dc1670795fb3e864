from django.urls import path

from apps.archive.web import views

app_name = "archive"
urlpatterns = [
    path("archive/", views.jobs, name="jobs"),
    path("archive/compare/", views.compare, name="compare"),
    path("archive/tar/", views.tar, name="tar"),
    path("archive/<int:pk>/", views.job, name="job"),
    path("archive/<int:pk>/diff/", views.diff, name="diff"),
    path("archive/<int:pk>/line/<int:number>/", views.line, name="line"),
    path("archive/<int:pk>/pin/", views.pin, name="pin"),
    path("archive/<int:pk>/unpin/", views.unpin, name="unpin"),
    path("archive/<int:pk>/use-capture/", views.use_capture, name="use-capture"),
    path("archive/<int:pk>/undo-choice/", views.undo_choice, name="undo-choice"),
    path("archive/<int:pk>/script/", views.content, {"kind": "script"}, name="script"),
    path(
        "archive/<int:pk>/environment/", views.content, {"kind": "environment"}, name="environment"
    ),
    path(
        "archive/<int:pk>/description/", views.content, {"kind": "description"}, name="description"
    ),
]
