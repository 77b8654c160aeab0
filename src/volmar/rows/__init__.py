"""Row sources: everything a linear-time method asks of X, and the feature maps that feed them."""

from typing import TYPE_CHECKING

from volmar._lazy import attach

if TYPE_CHECKING:
    from volmar.rows.blocks import BlockRows as BlockRows
    from volmar.rows.blocks import BlockTable as BlockTable
    from volmar.rows.blocks import RowVector as RowVector
    from volmar.rows.blocks import as_beside as as_beside
    from volmar.rows.blocks import as_table as as_table
    from volmar.rows.blocks import is_dask as is_dask
    from volmar.rows.cholesky import CholeskyMap as CholeskyMap
    from volmar.rows.convert import as_rows as as_rows
    from volmar.rows.convert import features_of as features_of
    from volmar.rows.convert import scale_gamma as scale_gamma
    from volmar.rows.dense import DenseRows as DenseRows
    from volmar.rows.draw import drawn_rows as drawn_rows
    from volmar.rows.kernel import Kernel as Kernel
    from volmar.rows.kernel_pca import KernelPCAMap as KernelPCAMap
    from volmar.rows.mapped import MappedRows as MappedRows
    from volmar.rows.moments import Moments as Moments
    from volmar.rows.nystroem import NystroemMap as NystroemMap
    from volmar.rows.protocol import BinSums as BinSums
    from volmar.rows.protocol import RowSource as RowSource
    from volmar.rows.sparse import SparseRows as SparseRows
    from volmar.rows.standardized import Standardized as Standardized
    from volmar.rows.standardized import evenly_scaled as evenly_scaled
    from volmar.rows.standardized import standardized as standardized
else:
    attach(
        __name__,
        blocks="BlockRows BlockTable RowVector as_beside as_table is_dask",
        cholesky="CholeskyMap",
        convert="as_rows features_of scale_gamma",
        dense="DenseRows",
        draw="drawn_rows",
        kernel="Kernel",
        kernel_pca="KernelPCAMap",
        mapped="MappedRows",
        moments="Moments",
        nystroem="NystroemMap",
        protocol="BinSums RowSource",
        sparse="SparseRows",
        standardized="Standardized evenly_scaled standardized",
    )
