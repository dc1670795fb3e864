from django.urls import path

from apps.submission.web import views

app_name = "submission"
urlpatterns = [
    path("submissions/<str:key>/", views.submissions, name="request"),
    path("submissions/<str:key>/assign/", views.assign, name="assign"),
    path("submissions/<str:key>/retry/", views.retry, name="retry"),
    path("submissions/<str:key>/accept/", views.accept, name="accept"),
    path("submissions/<str:key>/wait-again/", views.wait_again, name="wait-again"),
    path("submissions/<str:key>/limit/", views.limit, name="limit"),
    path("submissions/<str:key>/cancel/", views.cancel, name="cancel"),
    path("submissions/<str:key>/bundle/", views.bundle, name="bundle"),
    path("submissions/<str:key>/<int:number>/script/", views.script, name="script"),
    path("submissions/<str:key>/<int:number>/again/", views.again, name="again"),
]
