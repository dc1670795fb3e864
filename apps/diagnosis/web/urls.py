from django.urls import path

from apps.core.web import converters  # noqa: F401 -- registers them
from apps.diagnosis.web import (
    causes,
    exit_codes,
    groups,
    known_error_exchange,
    known_errors,
    logs,
    packs,
    reclassification,
    running_logs,
    slice_groups,
    views,
    where_else,
)

app_name = "diagnosis"
urlpatterns = [
    path("jobs/<int:pk>/verdict/", views.verdict, name="verdict"),
    path("jobs/<int:pk>/verdict/correct/", views.correct_verdict, name="correct-verdict"),
    path("jobs/<int:pk>/verdict/again/", views.harvest_again, name="harvest-again"),
    path("jobs/<int:pk>/log/", logs.log, name="log"),
    path("jobs/<int:pk>/log/where-else/", where_else.line, name="line"),
    path("jobs/<int:pk>/log/raw/", logs.raw_log, name="raw-log"),
    path("jobs/<int:pk>/log/compare/", logs.compare, name="compare-logs"),
    path("jobs/running/log/", running_logs.open_log, name="open-running-log"),
    path("jobs/running/<str:cluster>/<str:job_id>/log/", running_logs.follow, name="running-log"),
    path("failures/", groups.failures, name="failures"),
    path("failures/act/", groups.act_on_several, name="act-on-groups"),
    path("failures/<int:pk>/", groups.group, name="group"),
    path("failures/<int:pk>/act/", groups.act, name="act-on-group"),
    path("failures/known-errors/", known_errors.known_errors, name="known-errors"),
    path("failures/known-errors/new/", known_errors.new_known_error, name="known-error-new"),
    path(
        "failures/known-errors/changes/<int:pk>/",
        known_errors.known_error_change,
        name="known-error-change",
    ),
    path(
        "failures/known-errors/changes/<int:pk>/decide/",
        known_errors.decide_known_error,
        name="decide-known-error",
    ),
    path(
        "failures/known-errors/reclassify/",
        reclassification.reclassifications,
        name="reclassifications",
    ),
    path(
        "failures/known-errors/reclassify/<int:pk>/",
        reclassification.reclassification,
        name="reclassification",
    ),
    path(
        "failures/known-errors/export/",
        known_error_exchange.export_known_errors,
        name="known-errors-export",
    ),
    path(
        "failures/known-errors/import/",
        known_error_exchange.import_page,
        name="known-errors-import",
    ),
    path("failures/known-errors/<str:pk>/", known_errors.known_error, name="known-error"),
    path(
        "failures/known-errors/<str:pk>/edit/",
        known_errors.edit_known_error,
        name="known-error-edit",
    ),
    path("failures/exit-codes/", exit_codes.exit_codes, name="exit-codes"),
    path("failures/packs/", packs.packs, name="packs"),
    path("failures/packs/<int:pk>/", packs.pack, name="pack"),
    path("failures/packs/<int:pk>/decide/", packs.decide, name="decide-pack"),
    path("failures/where-else/", where_else.where_else, name="where-else"),
    path("failures/where-else/watch/", where_else.watch_line, name="watch-line"),
    path("failures/where-else/<int:pk>/", where_else.template, name="template"),
    path("failures/new-lines/", where_else.new_lines, name="new-lines"),
    path("failures/causes/", causes.causes, name="causes"),
    path("failures/of/<slug:kind>/<text:name>/", slice_groups.slice_groups, name="slice-groups"),
    path("failures/jobs/", views.failed_jobs, name="failed-jobs"),
]
