"""Maximum volume clustering, which looks for labels whose orthant covers much of an ellipsoid."""

from typing import TYPE_CHECKING

from volmar._lazy import attach

if TYPE_CHECKING:
    from volmar.volume.hard_label_mvc import HardLabelMVC as HardLabelMVC
    from volmar.volume.hard_label_mvc import HardLabelResult as HardLabelResult
    from volmar.volume.multiway import MultiwayVolumeResult as MultiwayVolumeResult
    from volmar.volume.problem import VolumeProblem as VolumeProblem
    from volmar.volume.soft_label_mvc import SoftLabelMVC as SoftLabelMVC
    from volmar.volume.two_way import VolumeResult as VolumeResult
    from volmar.volume.volume_regularized_classifier import AVRProblem as AVRProblem
    from volmar.volume.volume_regularized_classifier import AVRResult as AVRResult
    from volmar.volume.volume_regularized_classifier import (
        VolumeRegularizedClassifier as VolumeRegularizedClassifier,
    )

attach(__name__)
