from django.db import migrations, models


class Migration(migrations.Migration):
    # Each statement locks one table for a moment: together they would deadlock with running code.
    atomic = False

    dependencies = [
        ('accounts', '0004_visits'),
    ]

    operations = [
        migrations.AlterField(
            model_name='user',
            name='link_by_name',
            field=models.BooleanField(db_default=False, default=False, help_text='Link the account to the next sign-on with this user name, although it has a password. Ignored for staff.', verbose_name='link by name'),
        ),
    ]
