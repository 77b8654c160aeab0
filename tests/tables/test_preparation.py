"""Preparation of columns: kinds, categories that agree, tails and missing values."""

import datetime

import numpy as np
import pandas as pd
import pytest
from helpers.categories import latent_classes
from helpers.table_files import prepared, refused
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from volmar.tables import Preparation, read_table
from volmar.tables.prepare import source_columns


class TestNumbers:
    def test_scales_as_scikit_learn(self, rng):
        X = rng.normal(3, 5, (9000, 6))
        for scale, scaler in (
            ("auto", StandardScaler()),
            ("standard", StandardScaler()),
            ("minmax", MinMaxScaler()),
        ):
            want = scaler.fit_transform(X)
            for data in (X, np.asfortranarray(X), pd.DataFrame(X)):
                got = Preparation(scale=scale).fit_prepare(data)
                np.testing.assert_allclose(got.X, want, atol=1e-12)
                assert got.X.flags.c_contiguous
                assert got.X.flags.writeable
        np.testing.assert_array_equal(Preparation(scale="none").fit_prepare(X).X, X)

    def test_the_table_is_left_alone(self, rng):
        frame = pd.DataFrame(rng.normal(size=(20, 3)))
        frame["long"] = np.exp(3 * rng.normal(size=20))
        frame.iloc[3, 1] = np.nan
        before = frame.copy()
        for missing in ("drop", "impute", "indicator"):
            out = Preparation(missing=missing).fit_prepare(frame)
            out.X[:] = 0
            pd.testing.assert_frame_equal(frame, before)

    def test_a_word_among_numbers_is_missing(self, put):
        rows = "".join(f"{i * i},{'?' if i == 30 else 3 * i % 101}\n" for i in range(100))
        path = put("a.csv", "a,b\n" + rows)
        got = prepared(path)
        assert got.X.shape == (100, 2)
        assert any("'b'" in note and "'?' in row 30" in note for note in got.notes)
        refused(lambda: prepared(path, missing="error"), "'b'", "'?'", "row 30", "missing=")
        np.testing.assert_array_equal(prepared(path, missing="drop").kept, np.arange(100) != 30)

    def test_huge_numbers(self, put):
        path = put("a.csv", "a,b\n123456789012345678901234567890,1\n5,2\n7,3\n")
        np.testing.assert_allclose(prepared(path, scale="none").X[0, 0], 1.2345678901234568e29)
        ids = prepared(put("b.csv", "a,b\n9007199254740995,1\n5,2\n7,3\n"))
        assert any("2^53" in note and "'a'" in note for note in ids.notes)
        wide = put("c.csv", "a,b\n1e308,1\n-1e308,2\n1e307,3\n")
        refused(lambda: prepared(wide), "'a'", "unit")

    def test_few_rows_and_constant_columns(self, put):
        refused(lambda: prepared(put("a.csv", "a,b\n1,2\n")), "a.csv has 1 row")
        refused(lambda: prepared(put("a.csv", "a,b\n1,x\n1,x\n")), "a.csv", "all rows are equal")
        got = prepared(put("a.csv", "a,b,c\n1,x,3\n1,x,4\n"))
        assert got.feature_names == ["c"]
        assert any("'a'" in note and "one value" in note for note in got.notes)
        assert prepared(put("a.csv", "a\n1\n2\n")).X.shape == (2, 1)

    def test_copies_in_other_units(self, rng):
        cm = rng.normal(170, 10, 200)
        frame = pd.DataFrame({"cm": cm, "inch": cm / 2.54, "below": 200 - cm, "other": cm**2})
        preparation = Preparation().fit(frame)
        assert preparation.feature_names_ == ["cm", "other"]
        assert preparation.left_out_ == {"inch": "a copy of cm", "below": "a copy of cm"}
        assert sum("duplicates 'cm'" in note for note in preparation.notes_) == 2

    def test_choice_of_columns(self, put):
        path = put("a.csv", "alpha,b,c\n1,2,5\n3,4,9\n")
        assert prepared(path, columns=["c", "alpha"]).feature_names == ["c", "alpha"]
        assert prepared(path, columns=["c", "b"], drop=["b"]).feature_names == ["c"]
        assert prepared(path, drop="b").feature_names == ["alpha", "c"]
        refused(lambda: prepared(path, columns=["alhpa"]), "a.csv", "columns=", "'alpha'")
        refused(lambda: prepared(path, drop=["z"]), "drop=", "'z'")
        refused(lambda: prepared(path, id_column="z"), "id_column=", "'z'")
        refused(lambda: prepared(path, kinds={"z": "numeric"}), "kinds=", "'z'")
        refused(lambda: prepared(path, drop=["alpha", "b", "c"]), "no columns left")
        refused(lambda: prepared(path, columns=["b"], id_column="b"), "columns=", "id_column=")
        refused(lambda: prepared(path, scale="max"), "scale", "'max'", "minmax")
        refused(lambda: prepared(path, missing="mean"), "missing", "'mean'", "impute")
        refused(lambda: prepared(path, kinds={"b": "number"}), "kinds={'b': 'number'}", "numeric")

    def test_duplicate_names(self):
        frame = pd.DataFrame([[1, 2], [3, 4]], columns=["a", "a"])
        refused(lambda: Preparation().fit(frame), "'a'", "Rename")

    def test_names_of_rows_in_the_index(self, rng):
        frame = pd.DataFrame(rng.normal(size=(20, 2)), index=[f"city {i}" for i in range(20)])
        frame.iloc[3, 0] = np.nan
        got = Preparation(missing="drop").fit_prepare(frame)
        assert got.id_name == "row"
        assert got.ids.tolist() == [f"city {i}" for i in range(20) if i != 3]
        assert Preparation().fit_prepare(frame.rename_axis("city")).id_name == "city"
        numbered = Preparation().fit_prepare(frame.set_axis(range(5, 25)))
        np.testing.assert_array_equal(numbered.ids, np.arange(20))

    def test_ids(self, put):
        got = prepared(put("a.csv", "k,a\n1,1\n,2\n1,3\n"), id_column="k")
        assert got.ids.tolist() == [1, None, 1]
        assert any("repeated" in note for note in got.notes)


class TestKinds:
    def table(self, n=200, seed=0):
        rng = np.random.default_rng(seed)
        return pd.DataFrame(
            {
                "customer_id": rng.permutation(10**7)[:n],
                "row": np.arange(n),
                "given_out": 5000 + rng.permutation(3 * n)[:n],
                "zip": rng.integers(10_000, 99_999, n),
                "name": [f"Name Number {i}" for i in range(n)],
                "code": [f"A{i:04d}" for i in range(n)],
                "amount": np.round(rng.normal(50, 10, n), 2),
                "n_orders": rng.poisson(4, n),
                "answer": rng.choice(["Strongly agree", "agree", "Neutral", "disagree"], n),
                "size": rng.choice(["S", "M", "L", "XL"], n),
                "age": rng.choice(["18-24", "25-44", "45-64", "65+"], n),
                "city": rng.choice(["Rome", "Oslo", "Bern"], n),
                "member": rng.choice([True, False], n),
                "flag": rng.integers(0, 2, n),
                "since": pd.Timestamp("2021-01-01")
                + pd.to_timedelta(rng.integers(0, 900, n), "D"),
                "seen": [f"{d:02d}/{m:02d}/2023" for d, m in rng.integers(1, 13, (n, 2))],
                "nested": [[i] for i in range(n)],
            }
        )

    def test_guesses(self):
        preparation = Preparation().fit(self.table())
        assert preparation.kinds_ == {
            "customer_id": "id",
            "row": "id",
            "given_out": "id",
            "zip": "id",
            "name": "text",
            "code": "id",
            "amount": "numeric",
            "n_orders": "numeric",
            "answer": "ordinal",
            "size": "ordinal",
            "age": "ordinal",
            "city": "categorical",
            "member": "boolean",
            "flag": "boolean",
            "since": "date",
            "seen": "date",
            "nested": "ignore",
        }
        assert preparation.feature_names_ == [
            *("amount", "n_orders", "answer", "size", "age", "since (year)", "seen (year)")
        ]
        assert set(preparation.left_out_) == set(preparation.kinds_) - set(preparation.used_)
        for name in ("customer_id", "zip", "given_out"):
            assert any(repr(name) in note for note in preparation.notes_), name
        assert any("'city', 'member', 'flag'" in note for note in preparation.notes_)

    def test_a_kind_that_is_given(self):
        frame = self.table()
        kinds = {"zip": "numeric", "amount": "ignore", "flag": "numeric", "size": "categorical"}
        preparation = Preparation(kinds=kinds).fit(frame)
        assert {"zip", "flag"} <= set(preparation.numbers_)
        assert not {"amount", "size"} & set(preparation.used_)
        assert preparation.left_out_["amount"] == "as requested"
        refused(lambda: Preparation(kinds={"city": "numeric"}).fit(frame), "'city'", "categorical")
        refused(lambda: Preparation(kinds={"city": "ordinal"}).fit(frame), "'city'", "order")
        refused(lambda: Preparation(kinds={"city": "date"}).fit(frame), "'city'", "2024-12-31")
        refused(lambda: Preparation(kinds={"amount": "date"}).fit(frame), "'amount'", "numbers")

    def test_codes_written_as_text(self):
        words = [f"{i * 37 % 100:05d}" for i in range(60)]
        frame = pd.DataFrame({"n": words, "x": np.random.default_rng(0).normal(size=60)})
        preparation = Preparation().fit(frame)
        assert preparation.left_out_ == {"n": "its numbers have leading zeros, as codes do"}
        frame["n"] = [str(10 + i % 40) for i in range(60)]
        assert Preparation().fit(frame).feature_names_ == ["n", "x"]
        for name in ("zip", "ZIP_code", "postcode", "home_phone", "phone_number", "billing-zip"):
            assert Preparation().fit(frame.rename(columns={"n": name})).kinds_[name] == "id", name
        frame["phone"] = ["Android", "iPhone", "none"] * 20
        assert Preparation().fit(frame).kinds_["phone"] == "categorical"
        for name in ("n_phones", "zipped", "ship", "phone_minutes", "grid", "valid"):
            assert Preparation().fit(frame.rename(columns={"n": name})).kinds_[name] == "numeric"

    def test_places_of_ordinal_values(self):
        frame = self.table()
        preparation = Preparation(columns=["answer", "size"], scale="none")
        X = preparation.fit_prepare(frame).X
        order = {"disagree": 0, "Neutral": 1, "agree": 2, "Strongly agree": 3}
        np.testing.assert_array_equal(X[:, 0], frame["answer"].map(order))
        np.testing.assert_array_equal(
            X[:, 1], frame["size"].map({"S": 0, "M": 1, "L": 2, "XL": 3})
        )
        ordered = pd.Categorical(["b", "c", "a", "b"] * 5, ["c", "b", "a"], ordered=True)
        own = Preparation(scale="none").fit_prepare(pd.DataFrame({"o": ordered}))
        np.testing.assert_array_equal(own.X.ravel(), [1, 0, 2, 1] * 5)

    def test_dates_are_years(self):
        frame = pd.DataFrame(
            {"t": pd.to_datetime(["2020-01-01", "2020-07-01", "2021-01-01", None])}
        )
        X = Preparation(scale="none", missing="drop").fit_prepare(frame).X.ravel()
        np.testing.assert_allclose(X, [2020, 2020.5, 2021], atol=0.01)
        text = pd.DataFrame({"t": ["31.12.2020", "01.02.2021", "05.06.2022"]})
        np.testing.assert_allclose(
            Preparation(scale="none").fit_prepare(text).X.ravel(), [2021, 2021.085, 2022.43],
            atol=0.01,
        )  # fmt: skip
        zoned = pd.DataFrame({"t": pd.date_range("2020", periods=20, freq="97h", tz="Asia/Tokyo")})
        assert Preparation().fit_prepare(zoned).X.shape == (20, 1)

    DAY_FIRST = ("25/12/2021", "05/06/2021", "06/05/2021")
    JUNE = (
        *("2021-06-05", "2021/06/05", "2021.6.5", "2021-06-05T00:00", "2021-06-05 00:00:00"),
        *("2021-06-05T00:00:00Z", "2021-06-05 00:00:00.000+00:00", "2021-06-05 02:00 +0200"),
        *("5 June 2021", "5-Jun-2021", "June 5, 2021", "Jun 05 2021", "2021-06-05 12:00 AM"),
        *(pd.Timestamp("2021-06-05"), pd.Timestamp("2021-06-05", tz="UTC")),
        *(datetime.date(2021, 6, 5), np.datetime64("2021-06-05"), pd.Period("2021-06-05", "D")),
    )

    @staticmethod
    def years(preparation: Preparation, *values: object) -> tuple[list[float], list[str]]:
        new = preparation.prepare(pd.DataFrame({"t": pd.Series(values, dtype=object)}))
        return new.X.ravel().tolist(), new.notes

    @pytest.mark.parametrize("value", JUNE, ids=str)
    @pytest.mark.parametrize(
        "fitted",
        [
            DAY_FIRST,
            ("12/25/2021", "06/05/2021", "05/06/2021"),
            ("2021-12-25", "2021-06-05", "2021-05-06"),
            ("25 Dec 2021", "5 Jun 2021", "6 May 2021"),
            tuple(pd.to_datetime(["2021-12-25", "2021-06-05", "2021-05-06"])),
        ],
        ids=["day", "month", "year", "names", "timestamps"],
    )
    def test_a_date_is_one_number_in_every_clear_spelling(self, fitted, value):
        frame = pd.DataFrame({"t": [*fitted] * 4})
        table = Preparation(scale="none").fit_prepare(frame)
        preparation = Preparation(scale="none").fit(frame)
        years, notes = self.years(preparation, value)
        assert years == [table.X[1, 0]]
        assert not notes
        assert years[0] == pytest.approx(2021.426, abs=1e-3)
        whole = pd.DataFrame({"t": pd.Series([value]).repeat(3).reset_index(drop=True)})
        assert preparation.prepare(whole).X.ravel().tolist() == years * 3

    def test_dates_in_another_layout_are_missing_with_a_note(self):
        preparation = Preparation(scale="none").fit(pd.DataFrame({"t": self.DAY_FIRST}))
        assert not any("day or the month" in note for note in preparation.notes_)
        assert (
            self.years(preparation, "05.06.2021", "05/06/21", "5-6-2021 00:00")[0]
            == [self.years(preparation, "2021-06-05")[0][0]] * 3
        )
        good = ["2021-06-05"] * 4
        for wrong in ("12/25/2021", "2021-25-12", 44_355, 2021.5, "44355", "5 Juno 2021", True):
            _, notes = self.years(preparation, *good, wrong)
            assert any("'t'" in note and repr(str(wrong)) in note for note in notes), wrong
            refused(lambda wrong=wrong: self.years(preparation, wrong), "'t'", "31/12/2024")
        for numbers in ([44_355, 44_356], [2021.5, 2022.5]):  # columns that are all numbers
            refused(lambda n=numbers: preparation.prepare(pd.DataFrame({"t": n})), "'t'")
        clear = Preparation(scale="none").fit(
            pd.DataFrame({"t": ["2021-12-25", "2021-06-05", "2020-01-01"]})
        )
        refused(lambda: self.years(clear, "05/06/2021"), "'t'", "2024-12-31")

    @pytest.mark.parametrize(
        ("values", "first", "layout"),
        [
            (("05/06/2021", "06/06/2021", "07/08/2021"), 2021.344, "month first"),
            (("05.06.2021", "06.06.2021", "07.08.2021"), 2021.426, "day first"),
            (("21-06-05", "22-06-05", "23-06-06"), 2005.468, "day first"),
        ],
    )
    def test_an_ambiguous_layout_is_noted(self, values, first, layout):
        table = Preparation(scale="none").fit_prepare(pd.DataFrame({"t": values}))
        assert table.X[0, 0] == pytest.approx(first, abs=2e-3)
        (note,) = [note for note in table.notes if "'t' may have" in note]
        assert layout in note
        assert values[0] in note
        assert "2024-12-31" in note

    def test_the_layout_is_decided_by_all_values(self):
        days = pd.date_range("2000-01-01", periods=6000).strftime("%d/%m/%Y")
        late = [day for day in days if int(day[:2]) <= 12][:1500]
        frame = pd.DataFrame({"t": [*late, "25/12/2021", "2021-06-05"]})
        table = Preparation(scale="none").fit_prepare(frame)
        assert table.X[-1, 0] == pytest.approx(2021.426, abs=2e-3)
        assert table.X[1, 0] == pytest.approx(2000.0, abs=4e-3)  # 2 January
        assert not any("'t' may have" in note for note in table.notes)
        frame = pd.DataFrame({"t": ["25/12/2021", "12/26/2021", "01/02/2021"], "x": [1, 2, 4]})
        preparation = Preparation().fit(frame)
        assert "25/12/2021" in preparation.left_out_["t"]
        assert "12/26/2021" in preparation.left_out_["t"]
        refused(lambda: Preparation(kinds={"t": "date"}).fit(frame), "'t'", "12/26/2021")

    @pytest.mark.parametrize("n", [3, 60, 10_000])
    def test_text_that_names_rows(self, n):
        x = np.random.default_rng(0).normal(size=n)
        frame = pd.DataFrame({"name": [f"n{i}" for i in range(n)], "x": x})
        got = Preparation().fit_prepare(frame)
        assert got.feature_names == ["x"]
        assert any("'name'" in note and f"{n:,} different" in note for note in got.notes)
        got = Preparation(id_column="name").fit_prepare(frame)
        assert got.id_name == "name"
        assert got.ids.tolist() == frame["name"].tolist()
        alone = frame[["name"]]
        refused(lambda: Preparation().fit(alone), "'name'", f"{n:,} different", "kinds=")

    def test_polars_and_pyarrow(self):
        frame = self.table().drop(columns="nested")
        want = Preparation().fit_prepare(frame).X
        pyarrow = pytest.importorskip("pyarrow")
        table = pyarrow.Table.from_pandas(frame)
        np.testing.assert_allclose(Preparation().fit_prepare(table).X, want)
        polars = pytest.importorskip("polars")
        np.testing.assert_allclose(Preparation().fit_prepare(polars.from_pandas(frame)).X, want)

    def test_a_name_from_a_hostile_file_stays_a_name(self, put):
        rows = "".join(f"{'xyz'[i % 3]},{i * i}\n" for i in range(30))
        path = put("a.csv", "<script>,b\n" + rows)
        preparation = Preparation().fit(read_table(path))
        assert preparation.left_out_["<script>"] == "a category that no other column agrees with"


class TestCategories:
    def test_alone_they_describe(self, rng):
        n = 400
        frame = pd.DataFrame({"x": rng.normal(size=n), "y": rng.normal(size=n)})
        for j in range(5):
            frame[f"c{j}"] = rng.choice(["a", "b", "c"], n)
        preparation = Preparation().fit(frame)
        assert preparation.feature_names_ == ["x", "y"]
        assert preparation.texts_ == []

    def test_two_that_agree_are_one_fact(self, rng):
        n = 500
        city = rng.choice(["Rome", "Milan", "Oslo", "Bergen"], n)
        state = np.where(np.isin(city, ["Rome", "Milan"]), "Italy", "Norway")
        frame = pd.DataFrame({"x": rng.normal(size=n), "city": city, "state": state})
        frame["paid"] = rng.choice(["card", "cash", "bank"], n)
        assert Preparation().fit(frame).texts_ == []
        frame["country_code"] = np.where(state == "Italy", "IT", "NO")
        preparation = Preparation().fit(frame)
        assert preparation.left_out_["country_code"] == "duplicates state"

    @pytest.mark.parametrize("seed", range(3))
    def test_several_that_agree_are_features(self, seed):
        from sklearn.metrics import adjusted_rand_score

        from volmar import AutoClusterer

        frame, y = latent_classes(800, 8, seed)
        rows = Preparation().fit_prepare(frame)
        assert rows.X.shape[0] == 800
        np.testing.assert_allclose(rows.X.var(axis=0), 1.0, rtol=1e-6)
        model = AutoClusterer(random_state=0).fit(rows.dithered(0))
        assert model.n_clusters_ == 2
        assert adjusted_rand_score(y, model.predict(rows.X)) > 0.8

    def test_a_single_column_is_no_group(self, rng):
        from volmar import AutoClusterer

        frame = pd.DataFrame({"c": rng.choice(["a", "b"], 500), "d": rng.choice(["u", "v"], 500)})
        rows = Preparation().fit_prepare(frame)
        assert AutoClusterer(random_state=0).fit(rows.dithered(0)).n_clusters_ == 1

    def test_scores_are_correspondence_analysis(self):
        """Return the eigenvalues of the moments of the indicators, from their definition."""
        from volmar.tables.features import _Block, _eigen

        frame, _ = latent_classes(300, 4, 0)
        codes = [pd.factorize(frame[name], sort=True)[0] for name in frame]
        values, vectors = _eigen([_Block.of("c", code, 3).indicators for code in codes])
        Z = pd.get_dummies(frame).to_numpy(dtype=float)
        p = Z.mean(axis=0)
        C = (Z.T @ Z / len(Z) - np.outer(p, p)) / np.sqrt(np.outer(p, p))
        np.testing.assert_allclose(values, np.linalg.eigvalsh(C)[::-1], atol=1e-10)
        np.testing.assert_allclose(C @ vectors, vectors * values, atol=1e-10)

    def test_more_values_than_rows(self):
        """With few rows, the eigenvectors are those of the moments, too."""
        from volmar.tables.features import _Block, _eigen

        frame, _ = latent_classes(60, 40, 0)
        blocks = [
            _Block.of(name, pd.factorize(frame[name], sort=True)[0], 3).indicators
            for name in frame
        ]
        values, vectors = _eigen(blocks)
        A = np.hstack(blocks)
        np.testing.assert_allclose(
            values, np.linalg.eigvalsh(A.T @ A / 60)[::-1][: values.size], atol=1e-9
        )
        np.testing.assert_allclose(A.T @ (A @ vectors) / 60, vectors * values, atol=1e-9)
        np.testing.assert_allclose(vectors.T @ vectors, np.eye(values.size), atol=1e-9)
        rows = Preparation().fit_prepare(frame)
        assert np.isfinite(rows.dithered(0)).all()

    def test_scores_of_new_rows(self):
        frame, _ = latent_classes(500, 8, 1)
        preparation = Preparation().fit(frame)
        rows = preparation.prepare(frame)
        np.testing.assert_array_equal(rows.X, preparation.fit_prepare(frame).X)
        new = frame.iloc[:3].copy()
        new.loc[new.index[0], "c0"] = "never seen"
        new.loc[new.index[1], "c0"] = None
        got = preparation.prepare(new)
        assert np.isfinite(got.X).all()
        np.testing.assert_array_equal(got.X[2], rows.X[2])
        assert any("'never seen'" in note for note in got.notes)

    def test_dithering_hides_what_two_columns_do(self):
        """The noise of a score is as wide as the range of its two leading columns."""
        frame, _ = latent_classes(600, 6, 2, n_values=2)
        preparation = Preparation().fit(frame)
        scores = preparation.scores_
        moves = np.sort([np.ptp(w[:-1], axis=0) for w in scores.weights], axis=0)[-2:]
        np.testing.assert_allclose(scores.widths, moves.sum(axis=0))
        rows = preparation.prepare(frame)
        apart = np.abs(rows.dithered(0) - rows.X)
        assert (apart <= 0.5 * scores.widths + 1e-12).all()
        assert apart.max() > 0.4 * scores.widths.min()
        np.testing.assert_array_equal(rows.dithered(3), rows.dithered(3))


class TestSourceColumns:
    def test_in_their_own_units(self):
        frame = TestKinds().table()
        preparation = Preparation()
        kept = preparation.fit_prepare(frame).kept
        columns, names = source_columns(frame, preparation, kept)
        assert names == preparation.used_
        np.testing.assert_array_equal(columns["amount"], frame["amount"])
        assert columns["size"].cat.ordered
        np.testing.assert_array_equal(columns["since"], frame["since"])
        columns, names = source_columns(frame, preparation, kept, every=True)
        assert {"city", "member", "flag", "since (weekday)", "seen (month)"} <= set(names)
        assert not {"customer_id", "name", "nested", "zip"} & set(names)
        assert (columns["since (weekday)"] == frame["since"].dt.strftime("%a").to_numpy()).all()


def test_the_report_says_that_categories_lead(tmp_path):
    from volmar import TableClusterer

    frame, _ = latent_classes(600, 8, 0)
    frame["noise"] = np.random.default_rng(0).normal(size=600)
    clusterer = TableClusterer().fit(frame)
    assert clusterer.n_clusters_ == 2
    clusterer.report(tmp_path / "page.html")
    html = (tmp_path / "page.html").read_text(encoding="utf-8")
    head = html[: html.index('id="plane"')]
    assert "These columns agree with each other" in head
