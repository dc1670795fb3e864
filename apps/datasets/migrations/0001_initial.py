import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('core', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='Catalogue',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.SlugField(max_length=64, unique=True)),
                ('kind', models.CharField(help_text='json, sam, metacat, rucio or a plugin.', max_length=32)),
                ('base_url', models.CharField(help_text='URL of its interface, such as https://sam.example.org:8483/sam/nova/api, or the path of a JSON file.', max_length=500, verbose_name='address')),
                ('credential_file', models.CharField(blank=True, help_text='Path of a file with a token, or of a JSON object, on the hosts of the workers. Empty: without signing in.', max_length=500)),
                ('options', models.JSONField(blank=True, default=dict, help_text='Options of this kind.')),
                ('active', models.BooleanField(default=True)),
                ('answered_at', models.DateTimeField(blank=True, editable=False, null=True)),
                ('error', models.TextField(blank=True, editable=False)),
            ],
            options={
                'ordering': ['name'],
            },
        ),
        migrations.CreateModel(
            name='KnownDataset',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('due_at', models.DateTimeField(help_text='When it is tried next or, while a worker has it, when it counts as lost.')),
                ('attempts', models.PositiveIntegerField(default=0)),
                ('last_error', models.TextField(blank=True)),
                ('name', models.CharField(max_length=500)),
                ('is_waiting', models.BooleanField(default=True)),
                ('exists', models.BooleanField(blank=True, null=True)),
                ('files', models.BigIntegerField(blank=True, null=True)),
                ('events', models.BigIntegerField(blank=True, null=True)),
                ('size_bytes', models.BigIntegerField(blank=True, null=True)),
                ('requested_at', models.DateTimeField(help_text='When the portal last needed it, to the day.')),
                ('answered_at', models.DateTimeField(blank=True, null=True)),
                ('catalogue', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='datasets', to='datasets.catalogue')),
            ],
            options={
                'ordering': ['-pk'],
                'indexes': [models.Index(condition=models.Q(('is_waiting', True)), fields=['due_at'], name='known_dataset_waiting'), models.Index(fields=['requested_at'], name='known_dataset_requested')],
                'constraints': [models.UniqueConstraint(fields=('catalogue', 'name'), name='known_dataset_once'), models.CheckConstraint(condition=models.Q(models.Q(('answered_at', None), ('exists', None)), models.Q(('answered_at__isnull', False), ('exists__isnull', False)), _connector='OR'), name='known_dataset_answer')],
            },
        ),
    ]
