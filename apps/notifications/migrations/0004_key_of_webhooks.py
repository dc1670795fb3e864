from django.apps.registry import Apps
from django.conf import settings
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

from apps.core.domain.secrets.signing_keys import key_id


def store_present_key(apps: Apps, _editor: BaseDatabaseSchemaEditor) -> None:
    """Until now, all secrets were derived from the present key."""
    webhooks = apps.get_model("notifications", "Webhook").objects
    webhooks.update(key_id=key_id(settings.SECRET_KEY))


class Migration(migrations.Migration):

    dependencies = [
        ('notifications', '0003_help_texts'),
    ]

    operations = [
        migrations.AddField(
            model_name='webhook',
            name='key_id',
            field=models.CharField(blank=True, default='', help_text='Tells which SECRET_KEY the secret is derived from.', max_length=16),
            preserve_default=False,
        ),
        migrations.RunPython(store_present_key, migrations.RunPython.noop),
    ]
