"""Missing values, long tails and new tables for a fitted preparation."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from helpers.categories import latent_classes
from helpers.table_files import prepared, refused
from sklearn.exceptions import NotFittedError
from sklearn.preprocessing import StandardScaler

from volmar.tables import LoadedTable, Preparation


class TestTails:
    def test_a_log_where_it_makes_a_column_even(self, rng):
        n = 2000
        frame = pd.DataFrame(
            {
                "money": np.exp(3 + rng.normal(size=n)),
                "with_zeros": np.where(rng.random(n) < 0.1, 0.0, np.exp(rng.normal(size=n))),
                "normal": rng.normal(100, 5, n),
                "negative": -np.exp(rng.normal(size=n)),
                "groups": np.where(rng.random(n) < 0.9, 10, 100) + rng.normal(size=n),
                "small_counts": rng.poisson(1.5, n),
                "counts": rng.negative_binomial(2, 2 / 42, n),
            }
        )
        preparation = Preparation().fit(frame)
        logs = [name for name in preparation.feature_names_ if name.startswith("log")]
        assert logs == ["log(money)", "log(with_zeros)", "log(counts)"]
        assert any("log scale: 'money', 'with_zeros', 'counts'" in n for n in preparation.notes_)
        rows = preparation.prepare(frame)
        np.testing.assert_allclose(rows.X.mean(axis=0), 0, atol=1e-10)
        np.testing.assert_allclose(rows.X.std(axis=0), 1)
        plain = Preparation(scale="standard").fit(frame)
        assert plain.feature_names_ == list(frame)
        # Values below the fitted minimum are treated as the minimum.
        new = frame.iloc[:2].assign(money=[-1.0, frame["money"].min()])
        got = preparation.prepare(new).X
        assert got[0, 0] == got[1, 0]

    def test_noise_of_counts_is_that_of_counts(self, rng):
        frame = pd.DataFrame({"counts": rng.negative_binomial(2, 2 / 42, 3000)})
        preparation = Preparation().fit(frame)
        rows = preparation.prepare(frame)
        shift = preparation.number_features_.tails.shifts[0]
        own = np.exp(rows.dithered(0) * preparation.scales_ + preparation.offsets_) - shift
        apart = own.ravel() - frame["counts"]
        assert np.abs(apart).max() <= 0.5 + 1e-9
        assert 0.27 < apart.std() < 0.31  # 1 / sqrt(12)

    def test_values_far_outside_have_a_limit(self, rng):
        x = rng.normal(size=1000)
        x[0], x[1] = 1e9, np.nan
        rows = Preparation().fit_prepare(pd.DataFrame({"x": x, "y": rng.normal(size=1000)}))
        assert np.abs(rows.X).max() < 5
        assert any("1 outlier" in n and "missing" in n for n in rows.notes)
        kept = Preparation(missing="drop").fit_prepare(pd.DataFrame({"x": x}))
        assert len(kept.X) == 999
        assert 10 < kept.X.max() < 20
        assert any("1 outlier" in n and "limit" in n for n in kept.notes)
        # More than 1 % of the rows are a group.
        x[:30] = 1e3 + rng.normal(size=30)
        group = Preparation().fit_prepare(pd.DataFrame({"x": x}))
        assert group.X[:30].min() > 5

    def test_noise_is_none_where_nothing_was_made(self, rng):
        rows = Preparation().fit_prepare(pd.DataFrame(rng.normal(size=(50, 2))))
        assert rows.dithered(0) is rows.X


class TestMissing:
    def test_is_an_error(self, put):
        path = put("a.csv", "a,b\n1,\ninf,2\n3,\n4,5\n")
        refused(
            lambda: prepared(path, missing="error"), "'a' 1", "'b' 2", "3 values", "drop", "impute"
        )
        path = put("b.csv", "a,b\n1,\n2,2\n3,4\n7,\n")
        words = ("2 rows", "missing='drop'", "missing='impute'", "drop=")
        refused(lambda: prepared(path, missing="error"), *words)
        fitted = Preparation(missing="error").fit(pd.DataFrame({"a": [1.0, 2.0, 4.0]}))
        refused(lambda: fitted.prepare(pd.DataFrame({"a": [np.nan]})), "fit it again")

    def test_rows_dropped(self, put):
        path = put("a.csv", "k,a,b\np,1,\nq,inf,2\ns,4,5\nt,7,8\n")
        got = prepared(path, missing="drop", id_column="k", scale="none")
        np.testing.assert_array_equal(got.kept, [False, False, True, True])
        assert got.ids.tolist() == ["s", "t"]
        np.testing.assert_array_equal(got.X, [[4, 5], [7, 8]])
        rows = prepared(path, missing="drop", drop=["k"])
        np.testing.assert_array_equal(rows.ids, [2, 3])
        np.testing.assert_allclose(rows.X.mean(axis=0), 0, atol=1e-12)
        nothing = put("b.csv", "a,b\n,1\n1,\n2,\n,2\n")
        refused(lambda: prepared(nothing, missing="drop"), "every row", "missing='impute'")

    def test_filled_in_from_similar_rows(self, rng):
        """A missing value is filled in from its own group, not with a value between two groups."""
        y = rng.integers(2, size=600)
        X = rng.normal(size=(600, 4)) + 8 * y[:, None]
        full = pd.DataFrame(X, columns=list("abcd"))
        table = full.mask(rng.random(full.shape) < 0.15)
        rows = Preparation(scale="none").fit_prepare(table)
        gone = table.isna().to_numpy()
        assert np.isfinite(rows.X).all()
        np.testing.assert_array_equal(rows.X[~gone], X[~gone])
        known_group = gone.sum(axis=1) < 4
        wrong = (rows.X > 4) != y[:, None].astype(bool)
        assert wrong[known_group].sum() == ((X > 4) != y[:, None]).sum(axis=None) == 0
        count = int(gone.sum())
        assert any(f"{count:,} missing values were filled in" in note for note in rows.notes)

    def test_rows_to_fit_have_values_as_uncertain_as_they_are(self, rng):
        """Filled-in values keep the variance of complete rows, which medians would reduce."""
        factor = rng.normal(size=(4000, 1))
        full = pd.DataFrame(factor + rng.normal(size=(4000, 5)))
        full[5] = rng.integers(1, 6, 4000)
        gone = rng.random(full.shape) < 0.3
        rows = Preparation(scale="none").fit_prepare(full.mask(gone))
        drawn = rows.dithered(0)
        np.testing.assert_array_equal(drawn[~gone], rows.X[~gone])
        for j in range(6):
            true, shrunk, fit = (A[gone[:, j], j].std() for A in (full.to_numpy(), rows.X, drawn))
            assert shrunk < 0.9 * true
            assert abs(fit / true - 1) < 0.1
        assert set(np.unique(drawn[:, 5])) == {1, 2, 3, 4, 5}

    def test_many_missing_values_are_a_warning(self, rng):
        frame = pd.DataFrame(rng.normal(size=(300, 4)), columns=list("abcd"))
        frame.loc[:89, "b"] = np.nan
        frame.loc[:239, "c"] = np.nan
        rows = Preparation().fit_prepare(frame)
        assert rows.feature_names == ["a", "b", "d"]
        assert any("'c'" in note and "two thirds" in note for note in rows.notes)
        (warning,) = rows.warnings
        assert "'b' 30 %" in warning
        assert "missing='drop'" in warning

    def test_an_indicator_where_it_is_asked_for(self, rng):
        """Indicators agree if values are missing in the same rows, not if at random."""
        frame = pd.DataFrame(rng.normal(size=(500, 6)), columns=list("abcdef"))
        frame.loc[rng.random(500) < 0.4, list("abcd")] = np.nan
        assert Preparation().fit(frame).texts_ == []
        preparation = Preparation(missing="indicator").fit(frame)
        # Four equal indicators count as one.
        assert preparation.left_out_["b is missing"] == "duplicates a is missing"
        apart = rng.random((500, 4)) < 0.1
        for j, name in enumerate("abcd"):
            frame.loc[apart[:, j], name] = np.nan
        preparation = Preparation(missing="indicator").fit(frame)
        assert preparation.texts_ == [f"{name} is missing" for name in "abcd"]
        rows = preparation.prepare(frame)
        np.testing.assert_array_equal(
            rows.X, Preparation(missing="indicator").fit_prepare(frame).X
        )

    def test_an_indicator_marks_words_in_new_rows(self, rng):
        """A word among numbers is missing in the fitted table, and in new rows alike."""
        frame = pd.DataFrame(rng.normal(size=(500, 4)), columns=list("abcd")).astype(str)
        absent = rng.random(500) < 0.3
        for name in "abcd":
            frame.loc[absent ^ (rng.random(500) < 0.1), name] = "?"
        fitted = Preparation(missing="indicator", kinds=dict.fromkeys("abcd", "numeric"))
        want = fitted.fit_prepare(frame)
        assert "a is missing" in fitted.texts_
        np.testing.assert_array_equal(fitted.prepare(frame).X, want.X)

    def test_columns_without_a_value(self, put):
        path = put("a.csv", "a,b\n,1\n,2\n")
        for missing in ("error", "drop", "impute"):
            got = prepared(path, missing=missing)
            assert got.feature_names == ["b"]
            assert got.kept.all()
            assert any("'a'" in note for note in got.notes)
        refused(lambda: prepared(put("b.csv", "a,b\n,\n,\n"), missing="drop"), "b.csv")


class TestNewTables:
    @pytest.mark.parametrize("missing", ["drop", "impute", "indicator"])
    @pytest.mark.parametrize("scale", ["auto", "standard", "minmax", "none"])
    def test_fit_then_transform_is_fit_transform(self, rng, missing, scale):
        frame, _ = latent_classes(60, 4, 0)
        frame = frame.assign(
            a=np.exp(rng.normal(size=60)),
            b=rng.normal(size=60),
            o=rng.choice(["low", "medium", "high"], 60),
            t=pd.date_range("2020", periods=60, freq="97h"),
        )
        frame.loc[4, "b"] = np.nan
        frame.loc[5, "c1"] = None
        both = Preparation(missing=missing, scale=scale).fit_prepare(frame)
        model = Preparation(missing=missing, scale=scale).fit(frame)
        np.testing.assert_array_equal(model.prepare(frame).X, both.X)
        assert both.X.shape[1] == len(both.feature_names) >= 4

    def test_new_rows(self):
        frame = pd.DataFrame({"a": [0.0, 2.0, 4.0], "b": [1, 5, 4], "one": 1})
        model = Preparation(scale="none", missing="error").fit(frame)
        new = pd.DataFrame({"extra": ["z"] * 2, "b": [1, 2], "a": [7, 8]})
        np.testing.assert_array_equal(model.prepare(new).X, [[7, 1], [8, 2]])
        refused(lambda: model.prepare(new[["b"]]), "'a'", "lacks 1 of the 2")
        bad = new.assign(a=["x", "y"])
        refused(lambda: model.prepare(bad), "'a'", "'x'", "row 0")
        gaps = new.assign(a=[np.nan, 1])
        refused(lambda: model.prepare(gaps), "'a' 1", "missing=")
        model.missing = "drop"
        assert model.prepare(gaps).ids.tolist() == [1]
        with pytest.raises(NotFittedError):
            Preparation().prepare(frame)

    def test_arrays_by_place(self, rng):
        X = rng.normal(size=(30, 3))
        X[:, 1] = 2
        model = Preparation().fit(LoadedTable("named", X, None, ["u", "v", "w"]))
        assert model.feature_names_ == ["u", "w"]
        np.testing.assert_allclose(
            model.prepare(X).X, StandardScaler().fit_transform(X[:, [0, 2]]), atol=1e-12
        )
        refused(lambda: model.prepare(X[:, :2]), "'u'")

    def test_sparse(self, rng):
        dense = rng.poisson(0.5, (40, 6)).astype(float)
        dense[:, 2] = 0
        X = sp.csr_array(dense)
        model = Preparation(scale="none")
        got = model.fit_prepare(X)
        assert sp.issparse(got.X)
        np.testing.assert_array_equal(got.X.toarray(), np.delete(dense, 2, axis=1))
        # A sparse file may omit trailing zero columns.
        short = model.prepare(X[:, :5]).X.toarray()
        np.testing.assert_array_equal(short[:, :4], np.delete(dense, 2, axis=1)[:, :4])
        assert not short[:, 4].any()
        standard = Preparation(scale="standard").fit_prepare(X)
        want = StandardScaler().fit_transform(np.delete(dense, 2, axis=1))
        np.testing.assert_allclose(standard.X, want, atol=1e-12)
        assert any("dense" in note for note in standard.notes)
        huge = sp.csr_array(([1.0], ([0], [0])), shape=(20_000, 20_000))
        refused(lambda: Preparation(scale="standard").fit(huge), "GiB", "scale='none'")
        kept = Preparation().fit_prepare(huge)
        assert sp.issparse(kept.X)
        assert any("not scaled" in note for note in kept.notes)
        assert sp.issparse(kept.X)
        X.data[0] = np.nan
        refused(lambda: Preparation(scale="none", missing="error").fit(X), "missing='drop'")
        refused(lambda: Preparation(scale="none").fit(X), "sparse")
        assert Preparation(scale="none", missing="drop").fit_prepare(X).X.shape == (39, 5)

    def test_it_is_saved_with_a_model(self, tmp_path):
        from volmar import MSPC
        from volmar.models import load_model, save_model

        frame, _ = latent_classes(200, 6, 0)
        frame["money"] = np.exp(np.random.default_rng(0).normal(size=200))
        frame.loc[3, "money"] = np.nan
        frame["when"] = [f"2021-{m:02d}-11" for m in np.arange(200) % 12 + 1]
        preparation = Preparation()
        rows = preparation.fit_prepare(frame)
        model = MSPC(random_state=0).fit(rows.dithered(0))
        save_model(tmp_path / "m.volmar", model, preparation=preparation)
        again = load_model(tmp_path / "m.volmar").preparation
        np.testing.assert_array_equal(again.prepare(frame).X, rows.X)
