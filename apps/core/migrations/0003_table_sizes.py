
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('core', '0002_work'),
    ]

    operations = [
        migrations.CreateModel(
            name='TableSize',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('day', models.DateField()),
                ('table', models.CharField(max_length=64)),
                ('size_bytes', models.BigIntegerField()),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('day', 'table'), name='table_size_once')],
            },
        ),
    ]
