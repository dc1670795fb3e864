
from django.db import migrations


class Migration(migrations.Migration):

    dependencies = [
        ('archive', '0008_help_texts'),
    ]

    operations = [
        migrations.AlterModelOptions(
            name='scriptwords',
            options={'verbose_name_plural': 'words of scripts'},
        ),
    ]
