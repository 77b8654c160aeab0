"""Maximum volume clustering: the orthant of the labels takes in much of an ellipsoid's volume."""

from volmar.volume.avr import AVRProblem, AVRResult
from volmar.volume.hard_label_mvc import HardLabelMVC, HardLabelResult
from volmar.volume.problem import VolumeProblem
from volmar.volume.soft_label_mvc import SoftLabelMVC, VolumeResult
from volmar.volume.volume_regularized_classifier import VolumeRegularizedClassifier

__all__ = [
    "AVRProblem",
    "AVRResult",
    "HardLabelMVC",
    "HardLabelResult",
    "SoftLabelMVC",
    "VolumeProblem",
    "VolumeRegularizedClassifier",
    "VolumeResult",
]
