"""Maximum volume clustering: the orthant of the labels takes in much of an ellipsoid's volume."""

from volmar.volume.problem import VolumeProblem
from volmar.volume.soft_label_mvc import SoftLabelMVC, VolumeResult

__all__ = ["SoftLabelMVC", "VolumeProblem", "VolumeResult"]
