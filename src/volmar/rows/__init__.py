"""Row sources: everything a linear-time method asks of X, and the feature maps that feed them."""

from volmar.rows.cholesky import CholeskyMap
from volmar.rows.convert import as_rows, scale_gamma
from volmar.rows.dense import DenseRows
from volmar.rows.kernel import Kernel
from volmar.rows.kernel_pca import KernelPCAMap
from volmar.rows.mapped import MappedRows
from volmar.rows.moments import Moments
from volmar.rows.nystroem import NystroemMap
from volmar.rows.protocol import RowSource
from volmar.rows.sparse import SparseRows
from volmar.rows.standardized import Standardized, evenly_scaled, standardized

__all__ = [
    "CholeskyMap",
    "DenseRows",
    "Kernel",
    "KernelPCAMap",
    "MappedRows",
    "Moments",
    "NystroemMap",
    "RowSource",
    "SparseRows",
    "Standardized",
    "as_rows",
    "evenly_scaled",
    "scale_gamma",
    "standardized",
]
