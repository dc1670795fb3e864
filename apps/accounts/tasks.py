"""Celery tasks: delete expired sessions and tokens, and mail links to set a password."""

from celery import shared_task
from django.conf import settings
from django.contrib.auth.tokens import default_token_generator
from django.core.mail import send_mail
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django.utils.encoding import force_bytes
from django.utils.http import urlsafe_base64_encode

from apps.accounts.domain import api_tokens
from apps.accounts.models import User


@shared_task(name="accounts.forget_expired")
def forget_expired() -> None:
    api_tokens.forget_expired(at=timezone.now())


@shared_task(
    name="accounts.mail_password_link", autoretry_for=(OSError,), retry_backoff=10, max_retries=5
)
def mail_password_link(*, user_id: int) -> None:
    """Mail the user a link to set a new password. SMTP errors are `OSError`s."""
    user = User.objects.get(pk=user_id)
    uid = urlsafe_base64_encode(force_bytes(user.pk))
    token = default_token_generator.make_token(user)
    context = {
        "username": user.username,
        "url": settings.PORTAL_URL + reverse("accounts:new-password", args=[uid, token]),
        "minutes": settings.PASSWORD_RESET_TIMEOUT // 60,
        "is_new": user.last_login is None,
        "portal_url": settings.PORTAL_URL,
    }
    text = render_to_string("accounts/password_mail.txt", context)
    subject = "Your account on opsportal" if user.last_login is None else "Choose a new password"
    send_mail(f"[opsportal] {subject}", text, settings.DEFAULT_FROM_EMAIL, [user.email])
