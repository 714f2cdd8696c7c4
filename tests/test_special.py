"""Special functions against known constants and scipy."""

import numpy as np
import pytest
from scipy import special, stats

from surefoot.special import beta_quantile, chi2_quantile, digamma


def test_special_functions_match_known_constants_and_scipy():
    assert float(digamma(1.0)) == pytest.approx(-0.5772156649015329, abs=1e-14)
    assert float(digamma(0.5)) == pytest.approx(-1.9635100260214235, abs=1e-14)
    x = np.array([1e-3, 0.3, 2.0, 11.9, 50.0, 1e6])
    assert digamma(x) == pytest.approx(special.digamma(x), rel=1e-13)
    for a, b in [(0.3, 0.5), (1, 1), (2, 5), (40, 3), (3000, 2000), (1e-2, 30)]:
        for p in (0.025, 0.5, 0.975):
            assert beta_quantile(p, a, b) == pytest.approx(special.betaincinv(a, b, p), rel=1e-8, abs=1e-12)
    for k in (1, 2, 3, 8, 31, 100):
        assert chi2_quantile(0.95, k) == pytest.approx(stats.chi2(k).ppf(0.95), rel=1e-10)
