"""Is there more than one hump? Tests of a sample on the line, and how to combine them."""

from volmar.evidence.border_walk import Border
from volmar.evidence.combine import combine_p_values
from volmar.evidence.dip import Dip, DipTest, dip_statistic, dip_test
from volmar.evidence.dither import column_resolutions, dithered, dithered_scores
from volmar.evidence.humps import HumpTest, hump_test, valley_mass
from volmar.evidence.way_around import has_way_around

__all__ = [
    "Border",
    "Dip",
    "DipTest",
    "HumpTest",
    "column_resolutions",
    "combine_p_values",
    "dip_statistic",
    "dip_test",
    "dithered",
    "dithered_scores",
    "has_way_around",
    "hump_test",
    "valley_mass",
]
