from django.db import migrations


class Migration(migrations.Migration):

    dependencies = [
        ('archive', '0006_capture_beside_portal'),
    ]

    operations = [
        migrations.RemoveField(model_name='intakebatch', name='sinks'),
    ]
