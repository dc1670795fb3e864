
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('search', '0004_index_by_target'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='LineWatch',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('hash', models.BigIntegerField(help_text='64 bits of the hash of the template.')),
                ('created_at', models.DateTimeField()),
                ('seen_until', models.DateTimeField(help_text='End of the newest job of which the user was notified; first, the creation.')),
                ('notified_at', models.DateTimeField(blank=True, null=True)),
                ('user', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='line_watches', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'verbose_name_plural': 'line watches',
                'indexes': [models.Index(fields=['hash'], name='line_watch_of_line')],
                'constraints': [models.UniqueConstraint(fields=('user', 'hash'), name='line_watch_once')],
            },
        ),
    ]
