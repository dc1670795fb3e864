from django.urls import path

from apps.core.web import converters  # noqa: F401 -- registers them
from apps.recovery.web import decisions, owners, views

app_name = "recovery"
urlpatterns = [
    path("recovery/", views.rules, name="rules"),
    path("recovery/new/", views.new_rule, name="new"),
    path("recovery/rules/<int:pk>/", views.rule, name="rule"),
    path("recovery/rules/<int:pk>/edit/", views.edit_rule, name="edit"),
    path("recovery/rules/<int:pk>/mode/", views.switch_rule, name="mode"),
    path("recovery/rules/<int:pk>/move/", views.move, name="move"),
    path("recovery/rules/<int:pk>/decisions/", decisions.decisions, name="decisions"),
    path("recovery/decisions/", decisions.all_decisions, name="all-decisions"),
    path("recovery/experiments/<key>/rules.yaml", views.export, name="export"),
    path("recovery/weeks/<day:monday>/", views.week, name="week"),
    path("recovery/questions/", views.questions, name="questions"),
    path("recovery/questions/<int:pk>/", views.answer, name="answer"),
    path("recovery/owners/<int:pk>/", owners.owner, name="owner"),
    path("recovery/owners/<int:pk>/retries.tar", owners.owner_bundle_file, name="owner-bundle"),
    path("recovery/jobs/<int:pk>/", views.explain_job, name="job"),
]
