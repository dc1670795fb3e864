from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('clusters', '0002_help_texts'),
        ('hosts', '0002_probes'),
    ]

    operations = [
        migrations.AlterModelOptions(
            name='probejob',
            options={'ordering': ['-pk']},
        ),
        migrations.AlterModelOptions(
            name='proberesult',
            options={'ordering': ['-pk']},
        ),
        migrations.AddIndex(
            model_name='probejob',
            index=models.Index(condition=models.Q(('state', 'planned')), fields=['due_at'], name='probe_job_due'),
        ),
    ]
