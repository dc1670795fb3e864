from django.urls import path

from apps.quality.web import views

app_name = "quality"
urlpatterns = [
    path("quality/", views.waiting, name="waiting"),
    path("quality/<str:key>/", views.quality, name="request"),
    path("quality/<str:key>/again/", views.run_again, name="again"),
    path("quality/<str:key>/waive/", views.waive, name="waive"),
    path("quality/<str:key>/withdraw/", views.withdraw, name="withdraw"),
]
