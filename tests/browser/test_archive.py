"""The archive in a browser: found by request, read line by line,
without a serious accessibility violation.
"""

import re

import pytest
from playwright.sync_api import expect

from tests.archive.spool_writer import environment_bytes
from tests.factories.archive import captured_job, store

SCRIPT = b"""#!/bin/bash
#SBATCH --job-name=nova-sim
#SBATCH --mem=4G
source /cvmfs/nova.opensciencegrid.org/setup.sh
echo '<script>alert(1)</script>'
srun ./simulate --geometry far-detector --seed 17 --output /pnfs/nova/scratch/simulation/far/batch-0017.root
"""


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_job_is_found_and_read(open_as, assert_accessible, liaison, width, scheme, request):
    variables = [
        ("USER", "nova"),
        ("PATH", "/usr/bin:/bin:" + "/cvmfs/nova/bin:" * 20),
        ("API_TOKEN", "<masked:0123456789abcdef>"),
    ]
    store(
        captured_job(
            4711,
            request_key="NOVA-0231",
            stage="sim",
            script=SCRIPT,
            environment=environment_bytes(variables),
            masked_names=("API_TOKEN",),
        ),
        *(
            captured_job(4712 + i, minutes=i, request_key="NOVA-0232", stage="reco")
            for i in range(3)
        ),
    )
    page = open_as(liaison, width=width, scheme=scheme)
    page.goto("/archive/")
    assert_accessible(page)
    page.get_by_role("link", name="NOVA-0231").click()
    page.get_by_role("link", name="4711").click()
    page.get_by_role("link", name="5", exact=True).click()

    expect(page).to_have_url(re.compile("#L5$"))
    assert page.locator("#L5 span").inner_text() == "echo '<script>alert(1)</script>'"
    expect(page.get_by_text("<masked:0123456789abcdef>")).to_be_visible()
    assert_accessible(page)
    assert page.problems == []
