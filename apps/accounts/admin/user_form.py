"""The forms of a user: who it is and, for a new one, what the user may do and how to sign in."""

from typing import Any, ClassVar, cast

from django import forms
from django.conf import settings
from django.contrib.auth.forms import AdminPasswordChangeForm
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError

from apps.accounts.domain.single_sign_on import ways_to_sign_in
from apps.accounts.enums import Role, SignIn
from apps.accounts.models import Experiment, User
from apps.core.web.text_fields import CheckBoxes

USERNAME_RULE = "Use only letters, digits and @ . + - _ in the user name."
#: Django's own texts speak to the person who signs in, not to an admin.
STRENGTH_HELP = "At least 8 characters, no common password, and unlike the user's name and address."


class UserForm(forms.ModelForm):
    """Name and address of a user who exists already."""

    class Meta:
        model = User
        fields = ("username", "first_name", "last_name", "email", "time_zone")
        labels: ClassVar = {"username": "User name", "email": "E-mail"}
        help_texts: ClassVar = {"username": "Fixed after the first sign-in: records name it."}
        error_messages: ClassVar = {"username": {"invalid": USERNAME_RULE}}


class PasswordForm(AdminPasswordChangeForm):
    """A new password of a user, or none."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "usable_password" in self.fields:
            choice = cast(forms.ChoiceField, self.fields["usable_password"])
            choice.label = "Signs in by password"
            choice.choices = [("true", "Yes"), ("false", "No")]
            choice.help_text = "No: the password is deleted, and only single sign-on is left."
        self.fields["password1"].help_text = STRENGTH_HELP
        self.fields["password2"].label = "Password again"
        self.fields["password2"].help_text = ""


class NewUserForm(forms.ModelForm):
    """A new user with a role, and a way to sign in among those of the portal's settings."""

    role = forms.ChoiceField(
        required=False,
        choices=[("", "No role yet"), *Role.choices],
        help_text=(
            "Liaisons write requests of their experiments, approvers sign and operate them, "
            "shifters operate, admins of all experiments use the back office. Without a role, a "
            "user sees almost nothing."
        ),
    )
    experiments = forms.ModelMultipleChoiceField(
        Experiment.objects.all(),
        required=False,
        widget=CheckBoxes,
        help_text="More roles can be added on the page of the user.",
    )
    all_experiments = forms.BooleanField(
        required=False, label="All experiments", help_text="Also those that are added later."
    )
    sign_in = forms.ChoiceField(widget=forms.RadioSelect, label="Signs in")
    password = forms.CharField(required=False, strip=False)
    password_again = forms.CharField(required=False, strip=False)

    class Meta:
        model = User
        fields = ("username", "first_name", "last_name", "email", "sign_on_subject")
        labels: ClassVar = {"username": "User name", "email": "E-mail"}
        help_texts: ClassVar = {
            "username": "As at single sign-on, if there is one. Records name the user by it.",
            "email": "For notifications, and for links to choose a password.",
            "sign_on_subject": (
                "Issuer and subject, separated by a space. Empty: the account is linked by user "
                "name at the first sign-on."
            ),
        }
        error_messages: ClassVar = {
            "username": {"required": "Enter a user name.", "invalid": USERNAME_RULE},
            "sign_on_subject": {"unique": "Another user has this identity."},
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        ways = ways_to_sign_in()
        sign_in = cast(forms.ChoiceField, self.fields["sign_in"])
        sign_in.choices = [(way, way.label) for way in ways]
        sign_in.initial = ways[0]
        sign_in.help_text = _help_of(ways)
        if not settings.OIDC_ISSUER:
            self.fields["sign_on_subject"].widget = forms.HiddenInput()
        for name in ("password", "password_again"):
            self.fields[name].widget = forms.PasswordInput(attrs={"autocomplete": "new-password"})
        self.fields["password"].help_text = STRENGTH_HELP

    def clean_username(self) -> str:
        """Reject names that differ from another only by upper and lower case."""
        username: str = self.cleaned_data["username"]
        same = User.objects.filter(username__iexact=username).first()
        if same:
            raise ValidationError(f"There is a user {same} already.")
        return username

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        self._check_role(cleaned)
        if cleaned.get("sign_in") == SignIn.LINK and not cleaned.get("email"):
            if "email" not in self.errors:
                self.add_error("email", "Enter an address: the link is sent there.")
        elif cleaned.get("sign_in") == SignIn.PASSWORD:
            self._check_password(cleaned)
        elif cleaned.get("sign_in") == SignIn.SINGLE_SIGN_ON:
            self._check_identity(cleaned)
        return cleaned

    def _check_role(self, cleaned: dict[str, Any]) -> None:
        """Require a choice: a field that was forgotten gives nobody all experiments."""
        is_for_all = cleaned.get("all_experiments")
        is_for_some = bool(cleaned.get("experiments"))
        if is_for_all and is_for_some:
            self.add_error("all_experiments", "Choose some experiments or all, not both.")
        elif cleaned.get("role") and not (is_for_all or is_for_some):
            self.add_error("experiments", "Choose the experiments of the role, or tick all below.")
        elif (is_for_all or is_for_some) and not cleaned.get("role"):
            self.add_error("role", "Choose a role for these experiments.")

    def _check_password(self, cleaned: dict[str, Any]) -> None:
        password = cleaned.get("password", "")
        if not password:
            text = "Enter a password."
            if len(ways_to_sign_in()) > 1:
                text = "Enter a password, or choose another way to sign in."
            self.add_error("password", text)
        elif password != cleaned.get("password_again"):
            self.add_error("password_again", "The passwords differ.")
        else:
            try:
                validate_password(password, User(**_names(cleaned)))
            except ValidationError as error:
                self.add_error("password", error)

    def _check_identity(self, cleaned: dict[str, Any]) -> None:
        """Reject what `sign_on` would: it links no account of an admin by its name."""
        is_admin = cleaned.get("role") == Role.ADMIN and cleaned.get("all_experiments")
        is_by_name = not cleaned.get("sign_on_subject")
        if is_admin and is_by_name and not settings.REMOTE_USER_HEADER:
            text = (
                "An admin of all experiments is never linked by user name. Enter the identity, or "
                "choose another way to sign in."
            )
            self.add_error("sign_on_subject", text)

    @property
    def scope(self) -> list[Experiment | None]:
        """The experiments of the role, where None stands for all."""
        if self.cleaned_data["all_experiments"]:
            return [None]
        return list(self.cleaned_data["experiments"])


def _names(cleaned: dict[str, Any]) -> dict[str, str]:
    """Return what a password must not resemble."""
    names = {}
    for name in ("username", "first_name", "last_name", "email"):
        names[name] = cleaned.get(name) or ""
    return names


def _help_of(ways: list[SignIn]) -> str:
    """Say how each way works, and why a way is missing."""
    sentences = []
    if SignIn.LINK in ways:
        minutes = settings.PASSWORD_RESET_TIMEOUT // 60
        sentences.append(
            f"A link is valid for {minutes} minutes; later, “Forgot your password?” on the login "
            "page sends another."
        )
    else:
        sentences.append("The portal sends no mail (EMAIL_URL), so it cannot send a link.")
    if SignIn.SINGLE_SIGN_ON in ways and settings.SSO_ROLES:
        sentences.append("Groups at single sign-on also give roles (SSO_ROLES).")
    return " ".join(sentences)
