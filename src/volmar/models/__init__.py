"""Fitted models in files that hold numbers and names, and no code."""

from volmar.models.archive import ModelError
from volmar.models.store import SavedModel, load_model, save_model

__all__ = ["ModelError", "SavedModel", "load_model", "save_model"]
