from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("recovery", "0012_held_stage")]

    operations = [
        migrations.RemoveIndex(model_name="decision", name="decision_of_rule"),
        migrations.RemoveIndex(model_name="decision", name="decision_of_rule_newest"),
        migrations.RemoveIndex(model_name="decision", name="decision_first_failures"),
        migrations.AddIndex(
            model_name="decision",
            index=models.Index(
                fields=["rule", "version", "-decided_at", "-id"],
                include=("arm", "outcome", "experiment"),
                name="decision_of_rule",
            ),
        ),
        migrations.AddIndex(
            model_name="decision",
            index=models.Index(
                fields=["rule", "-decided_at", "-id"],
                include=("arm", "outcome", "experiment"),
                name="decision_of_rule_newest",
            ),
        ),
        migrations.AddIndex(
            model_name="decision",
            index=models.Index(
                condition=models.Q(
                    ("attempt", 1),
                    models.Q(("arm", "pending"), _negated=True),
                    models.Q(("arm", "person"), ("rule__isnull", True), _negated=True),
                ),
                fields=["-failed_at", "-id"],
                include=("experiment", "recovery", "job"),
                name="decision_first_failures",
            ),
        ),
    ]
