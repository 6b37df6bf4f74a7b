import numpy as np
from scipy.stats import norm

from guss import metrics


def test_full_separation_of_ten_against_ten_is_what_the_paper_reports():
    p = metrics.rank_sum_p(np.arange(10), np.arange(100, 110))
    # Rank sum 55, expected 105, standard deviation sqrt(10·10·21/12).
    assert np.isclose(p, 2 * norm.sf((105 - 55) / np.sqrt(175)))
    assert 1.5e-4 < p < 1.8e-4


def test_equal_samples_do_not_differ():
    assert metrics.rank_sum_p([1, 2, 3], [1, 2, 3]) == 1.0
