from tests.jobs.conftest import alps, jura, planned

__all__ = ["alps", "jura", "planned"]
