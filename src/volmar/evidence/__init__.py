"""Statistical tests for clusters: whether a split is real, and whether given labels are.

`split_test` tests whether the rows form more than one group, `label_test` which given clusters are
separated, and `calibrate_novelty` finds rows that belong to no cluster.
"""

from typing import TYPE_CHECKING

from volmar._lazy import attach

if TYPE_CHECKING:
    from volmar.evidence.label_test import LabelTestResult as LabelTestResult
    from volmar.evidence.label_test import label_test as label_test
    from volmar.evidence.novelty import ClusterNovelty as ClusterNovelty
    from volmar.evidence.novelty import calibrate_novelty as calibrate_novelty
    from volmar.evidence.split_test import SplitTestResult as SplitTestResult
    from volmar.evidence.split_test import split_test as split_test

attach(__name__)
