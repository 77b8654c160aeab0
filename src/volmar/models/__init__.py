"""Save fitted models to files and load them. The files hold data, and no code."""

from typing import TYPE_CHECKING

from volmar._lazy import attach

if TYPE_CHECKING:
    from volmar.models.store import ModelError as ModelError
    from volmar.models.store import SavedModel as SavedModel
    from volmar.models.store import load_model as load_model
    from volmar.models.store import save_model as save_model

attach(__name__)
