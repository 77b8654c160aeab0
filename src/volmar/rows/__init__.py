"""Row sources, through which linear-time methods read X, and feature maps for kernels."""

from typing import TYPE_CHECKING

from volmar._lazy import attach

if TYPE_CHECKING:
    from volmar.rows.anywhere import as_rows as as_rows
    from volmar.rows.anywhere import bin_sums as bin_sums
    from volmar.rows.anywhere import centered_with_moments as centered_with_moments
    from volmar.rows.anywhere import chosen_entries as chosen_entries
    from volmar.rows.anywhere import cluster_sizes as cluster_sizes
    from volmar.rows.anywhere import column_products as column_products
    from volmar.rows.anywhere import constant_vector as constant_vector
    from volmar.rows.anywhere import count_labels as count_labels
    from volmar.rows.anywhere import counted_rows as counted_rows
    from volmar.rows.anywhere import draw_from_collection as draw_from_collection
    from volmar.rows.anywhere import drawn_by_weight as drawn_by_weight
    from volmar.rows.anywhere import drawn_rows as drawn_rows
    from volmar.rows.anywhere import every as every
    from volmar.rows.anywhere import features_of as features_of
    from volmar.rows.anywhere import first_beyond as first_beyond
    from volmar.rows.anywhere import has_sparse_rows as has_sparse_rows
    from volmar.rows.anywhere import in_one_pass as in_one_pass
    from volmar.rows.anywhere import is_in_memory as is_in_memory
    from volmar.rows.anywhere import lazy_vector as lazy_vector
    from volmar.rows.anywhere import mapped_rows as mapped_rows
    from volmar.rows.anywhere import mapped_scores as mapped_scores
    from volmar.rows.anywhere import mask_key as mask_key
    from volmar.rows.anywhere import moments_of_sides as moments_of_sides
    from volmar.rows.anywhere import numbers_of_rows as numbers_of_rows
    from volmar.rows.anywhere import of_rows as of_rows
    from volmar.rows.anywhere import prefetch as prefetch
    from volmar.rows.anywhere import reweighted as reweighted
    from volmar.rows.anywhere import row_wise as row_wise
    from volmar.rows.anywhere import scale_gamma as scale_gamma
    from volmar.rows.anywhere import scramble as scramble
    from volmar.rows.anywhere import sums_by_label as sums_by_label
    from volmar.rows.anywhere import take_rows as take_rows
    from volmar.rows.anywhere import weighted_quantile as weighted_quantile
    from volmar.rows.blocks import BlockRows as BlockRows
    from volmar.rows.blocks import BlockTable as BlockTable
    from volmar.rows.blocks import RowVector as RowVector
    from volmar.rows.blocks import as_beside as as_beside
    from volmar.rows.blocks import as_table as as_table
    from volmar.rows.blocks import is_dask as is_dask
    from volmar.rows.cluster_sums import ClusterSums as ClusterSums
    from volmar.rows.cluster_sums import cluster_sums as cluster_sums
    from volmar.rows.cluster_sums import discriminant_labels as discriminant_labels
    from volmar.rows.cluster_sums import own_scores as own_scores
    from volmar.rows.cluster_sums import sums_by_discriminants as sums_by_discriminants
    from volmar.rows.kernel import Kernel as Kernel
    from volmar.rows.kernel import KernelPCAMap as KernelPCAMap
    from volmar.rows.kernel import NystroemMap as NystroemMap
    from volmar.rows.parts import Part as Part
    from volmar.rows.parts import Parts as Parts
    from volmar.rows.parts import Plane as Plane
    from volmar.rows.parts import Split as Split
    from volmar.rows.parts import pool_rows as pool_rows
    from volmar.rows.protocol import Moments as Moments
    from volmar.rows.protocol import RowSource as RowSource
    from volmar.rows.standardized import RowSpace as RowSpace
    from volmar.rows.standardized import Standardized as Standardized
    from volmar.rows.standardized import evenly_scaled as evenly_scaled
    from volmar.rows.standardized import exactly_standardized as exactly_standardized
    from volmar.rows.standardized import is_wide as is_wide
    from volmar.rows.standardized import row_space as row_space
    from volmar.rows.standardized import standardized as standardized
    from volmar.rows.tiled import BinSums as BinSums
    from volmar.rows.tiled import DenseRows as DenseRows
    from volmar.rows.tiled import MappedRows as MappedRows
    from volmar.rows.tiled import SparseRows as SparseRows

attach(__name__)
