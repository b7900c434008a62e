"""Samples that a closed form saves, read off curves that are known."""

import numpy as np
import pytest

from trident.verify import uav_critic
from trident.verify.claim import CORRECTED, FAILS, HOLDS, verdict

SIZES = [256, 512, 1024, 2048, 4096]


def curves(saved, r2):
    """Errors 100 / n, and those of a critic that needs so many times less."""
    plain = 100.0 / np.array(SIZES)
    error = {"with physics": [plain / saved] * 3, "without": [plain] * 3}
    return {"sizes": SIZES, "error": error, "r2_phys": [[r2] * len(SIZES)] * 3}


@pytest.mark.parametrize(("saved", "r2", "wanted"), [(4.0, 0.75, HOLDS), (4.0, 0.5, CORRECTED), (2.0, 0.9, FAILS)])
def test_the_saving_is_judged_against_what_the_closed_form_explains(saved, r2, wanted):
    data = curves(saved, r2)
    np.testing.assert_allclose(uav_critic.saving(data), saved, rtol=1e-6)
    assert verdict(uav_critic.CLAIMS[0].judge(data)) == wanted


def test_no_more_is_claimed_than_the_smallest_size_can_show():
    assert uav_critic.saving(curves(1000.0, 0.5)) == [16.0] * 3
