"""Is there more than one hump? Tests of a sample on the line, and how to combine them."""

from typing import TYPE_CHECKING

from volmar._lazy import attach

if TYPE_CHECKING:
    from volmar.evidence.border_walk import Border as Border
    from volmar.evidence.combine import combine_p_values as combine_p_values
    from volmar.evidence.dip import Dip as Dip
    from volmar.evidence.dip import DipTest as DipTest
    from volmar.evidence.dip import dip_statistic as dip_statistic
    from volmar.evidence.dip import dip_test as dip_test
    from volmar.evidence.dither import column_resolutions as column_resolutions
    from volmar.evidence.dither import dithered as dithered
    from volmar.evidence.dither import dithered_scores as dithered_scores
    from volmar.evidence.humps import HumpTest as HumpTest
    from volmar.evidence.humps import hump_test as hump_test
    from volmar.evidence.humps import valley_mass as valley_mass
    from volmar.evidence.way_around import has_way_around as has_way_around
else:
    attach(
        __name__,
        border_walk="Border",
        combine="combine_p_values",
        dip="Dip DipTest dip_statistic dip_test",
        dither="column_resolutions dithered dithered_scores",
        humps="HumpTest hump_test valley_mass",
        way_around="has_way_around",
    )
