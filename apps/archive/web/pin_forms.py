"""The form that pins a job."""

from django import forms


class PinForm(forms.Form):
    reason = forms.CharField(max_length=200, label="Why is it needed?", help_text="A ticket, or what is discussed.")
