from django.contrib.auth import views as auth
from django.urls import path

from apps.accounts.web import passwords, saved_views, views

app_name = "accounts"
urlpatterns = [
    path(
        "login/",
        auth.LoginView.as_view(
            template_name="accounts/login.html", redirect_authenticated_user=True
        ),
        name="login",
    ),
    path("logout/", views.LogoutView.as_view(), name="logout"),
    path("password/", passwords.ChangePasswordView.as_view(), name="change-password"),
    path(
        "password/forgotten/", passwords.ForgottenPasswordView.as_view(), name="forgotten-password"
    ),
    path(
        "password/new/<str:uidb64>/<str:token>/",
        passwords.NewPasswordView.as_view(),
        name="new-password",
    ),
    path("openid/", views.start_openid, name="openid"),
    path("openid/callback/", views.finish_openid, name="openid-callback"),
    path("openid/logout/", views.end_openid, name="openid-logout"),
    path("settings/", views.my_settings, name="settings"),
    path("views/", saved_views.save_view, name="view-save"),
    path("views/<int:pk>/", saved_views.change_view, name="view-change"),
    path("settings/tokens/", views.create_token, name="create-token"),
    path("settings/tokens/<str:token_key>/revoke/", views.revoke_token, name="revoke-token"),
]
