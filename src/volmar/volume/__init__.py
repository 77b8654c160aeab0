"""Maximum volume clustering: the orthant of the labels takes in much of an ellipsoid's volume."""

from volmar.volume.avr import AVRProblem, AVRResult
from volmar.volume.hard_label_mvc import HardLabelMVC, HardLabelResult
from volmar.volume.multiway import MultiwayVolumeResult
from volmar.volume.problem import VolumeProblem
from volmar.volume.soft_label_mvc import SoftLabelMVC
from volmar.volume.two_way import VolumeResult
from volmar.volume.volume_regularized_classifier import VolumeRegularizedClassifier

__all__ = [
    "AVRProblem",
    "AVRResult",
    "HardLabelMVC",
    "HardLabelResult",
    "MultiwayVolumeResult",
    "SoftLabelMVC",
    "VolumeProblem",
    "VolumeRegularizedClassifier",
    "VolumeResult",
]
