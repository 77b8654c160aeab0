"""Row sources: everything a linear-time method asks of X, and the feature maps that feed them."""

from volmar.rows.anywhere import (
    in_one_pass,
    is_in_memory,
    moments_of_sides,
    prefetch,
    take_rows,
)
from volmar.rows.blocks import (
    BlockRows,
    BlockTable,
    RowVector,
    as_beside,
    as_table,
    is_dask,
)
from volmar.rows.cholesky import CholeskyMap
from volmar.rows.convert import as_rows, features_of, scale_gamma
from volmar.rows.dense import DenseRows
from volmar.rows.draw import drawn_rows
from volmar.rows.kernel import Kernel
from volmar.rows.kernel_pca import KernelPCAMap
from volmar.rows.mapped import MappedRows
from volmar.rows.moments import Moments
from volmar.rows.nystroem import NystroemMap
from volmar.rows.protocol import BinSums, RowSource
from volmar.rows.sparse import SparseRows
from volmar.rows.standardized import Standardized, evenly_scaled, standardized

__all__ = [
    "BinSums",
    "BlockRows",
    "BlockTable",
    "CholeskyMap",
    "DenseRows",
    "Kernel",
    "KernelPCAMap",
    "MappedRows",
    "Moments",
    "NystroemMap",
    "RowSource",
    "RowVector",
    "SparseRows",
    "Standardized",
    "as_beside",
    "as_rows",
    "as_table",
    "drawn_rows",
    "evenly_scaled",
    "features_of",
    "in_one_pass",
    "is_dask",
    "is_in_memory",
    "moments_of_sides",
    "prefetch",
    "scale_gamma",
    "standardized",
    "take_rows",
]
