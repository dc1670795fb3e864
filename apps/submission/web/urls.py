from django.urls import path

from apps.submission.web import debugging, files, retries, views

app_name = "submission"
urlpatterns = [
    path("retries/", retries.retry_batches, name="retry-batches"),
    path("retries/<int:pk>/", retries.retry_batch, name="retry-batch"),
    path("retries/<int:pk>/act/", retries.act_on_batch, name="retry-act"),
    path("debug-runs/<int:pk>/", debugging.debug_run, name="debug-run"),
    path("debug-runs/<int:pk>/bundle/", debugging.bundle, name="debug-bundle"),
    path("retries/<slug:kind>/<int:pk>/", retries.retry_jobs, name="retry-jobs"),
    path("submissions/<str:key>/", views.submissions, name="request"),
    path("submissions/<str:key>/files/", files.stage_files, name="files"),
    path("submissions/<str:key>/files/list/", files.file_list, name="file-list"),
    path("submissions/<str:key>/files/outputs/", files.output_list, name="output-list"),
    path("submissions/<str:key>/files/download/", files.download, name="files-download"),
    path("submissions/<str:key>/files/give-up/", files.give_up, name="files-give-up"),
    path("submissions/<str:key>/files/take-back/", files.take_back, name="files-take-back"),
    path("submissions/<str:key>/files/count/", files.count, name="files-count"),
    path("submissions/<str:key>/files/missing/", files.request_missing, name="files-missing"),
    path("submissions/<str:key>/assign/", views.assign, name="assign"),
    path("submissions/<str:key>/retry/", views.retry, name="retry"),
    path("submissions/<str:key>/accept/", views.accept, name="accept"),
    path("submissions/<str:key>/wait-again/", views.wait_again, name="wait-again"),
    path("submissions/<str:key>/limit/", views.limit, name="limit"),
    path("submissions/<str:key>/ignore-advice/", views.ignore_advice, name="ignore-advice"),
    path("submissions/<str:key>/follow-advice/", views.follow_advice, name="follow-advice"),
    path("submissions/<str:key>/cancel/", views.cancel, name="cancel"),
    path("submissions/<str:key>/bundle/", views.bundle, name="bundle"),
    path("submissions/<str:key>/<int:number>/script/", views.script, name="script"),
    path("submissions/<str:key>/<int:number>/release/", views.release, name="release"),
    path("submissions/<str:key>/<int:number>/again/", views.again, name="again"),
]
