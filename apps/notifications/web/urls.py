from django.urls import path

from apps.notifications.web import feeds, views

app_name = "notifications"
urlpatterns = [
    path("notifications/", views.notification_list, name="list"),
    path("notifications/read/", views.read, name="read"),
    path("notifications/<int:pk>/", views.open_notification, name="open"),
    path("notifications/watches/<int:pk>/remove/", views.remove_watch, name="remove-watch"),
    path("notifications/settings/", views.my_settings, name="settings"),
    path("notifications/settings/feeds/", views.feed_address, name="feed-address"),
    path("notifications/settings/webhooks/", views.add_webhook, name="add-webhook"),
    path("notifications/settings/webhooks/<int:pk>/", views.change_webhook, name="change-webhook"),
    path("notifications/requests/<str:key>/", views.follow, name="request"),
    path("feeds/<str:token>/inbox.atom", feeds.inbox, name="feed-inbox"),
    path("feeds/<str:token>/requests/<str:key>.atom", feeds.of_request, name="feed-request"),
    path(
        "feeds/<str:token>/experiments/<str:key>.atom", feeds.of_experiment, name="feed-experiment"
    ),
]
