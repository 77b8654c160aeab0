"""The columns of every kind of artificial table.

A recipe takes `Rows` and returns a DataFrame. Groups are about five standard deviations apart on
the line through their means, before values are rounded, counted, cut into answers or lost. Columns
unrelated to the groups are in every table, as in real tables.
"""

import numpy as np
import pandas as pd

from benchmarks.table_rows import measured, skewed

LIKERT = ("strongly disagree", "disagree", "neither agree nor disagree", "agree", "strongly agree")
N_WORDS, N_GENES = 300, 3000


def customers(rows):
    """Occasional, regular and premium customers of a shop."""
    orders, basket, recency, visits = rows.scores(
        [[0, 0, 0, 0], [1, 0.6, -1, 0.9], [2, 1.6, -1.2, 2]], rows.rng.uniform(5, 6)
    ).T
    orders = 1 + rows.counts(14 * np.exp(0.32 * orders))
    basket = skewed(basket, 38, 0.3)
    age, items = rows.noise(2)
    return pd.DataFrame(
        {
            "customer_id": rows.ids(100_000, "C{}"),
            "signup_date": rows.days("2019-01-01", 5 * 365),
            "zip_code": rows.rng.integers(10_000, 99_999, rows.n),
            "age": np.clip(measured(age, 44, 14, 0), 18, 95).astype(int),
            "gender": rows.category(["female", "male", "other"], [0.52, 0.46, 0.02]),
            "region": rows.category(["north", "south", "east", "west"], [0.3, 0.3, 0.2, 0.2]),
            "orders": orders,
            "average_basket": basket,
            "total_spend": np.round(orders * basket * np.exp(0.08 * rows.noise()[0]), 2),
            "days_since_order": skewed(recency, 120, 0.45, 0).astype(int),
            "visits_per_month": np.round(6 * np.exp(0.35 * visits), 1),
            "items_per_order": skewed(items, 2.6, 0.35, 1),
            "returns": rows.counts(np.full(rows.n, 1.5)),
            "channel": rows.category(
                ["web", "store", "app"], [0.5, 0.35, 0.15], [0.5, 0.25, 0.25], [0.45, 0.2, 0.35]
            ),
            "payment": rows.category(
                ["card", "invoice", "transfer", "wallet"], [0.5, 0.2, 0.1, 0.2]
            ),
            "newsletter": rows.flag(0.4, 0.5, 0.65),
            "has_children": rows.yes_no(0.38),
        }
    )


SENSORS = {
    # mean, spread, decimals: ranges of usual instruments
    "temperature_c": (64, 6, 1),
    "pressure_pa": (101_300, 900, 0),
    "vibration_mm_s": (4.2, 0.4, 2),
    "current_a": (12, 1.5, 2),
    "voltage_mv": (3300, 45, 0),
    "flow_l_min": (220, 18, 1),
    "humidity_share": (0.42, 0.03, 4),
    "speed_rpm": (2900, 120, 0),
}


def sensors(rows):
    """Forty sensors of a plant in four states of operation; half of them depend on the state."""
    n_informative, n_columns = 20, 40
    pattern = np.zeros((rows.k, n_columns))
    chosen = rows.rng.permutation(n_columns)[:n_informative]
    pattern[:, chosen] = rows.rng.normal(size=(rows.k, n_informative))
    scores = rows.scores(pattern, rows.rng.uniform(5, 6), common=0.3, n_factors=4).T
    frame = {
        "time": np.datetime64("2024-03-01T00:00")
        + 10 * np.arange(rows.n).astype("timedelta64[m]"),
        "station": rows.category(["A1", "B7", "C3"], [0.4, 0.35, 0.25]),
    }
    for i, score in enumerate(scores):
        quantity, (mean, spread, decimals) = list(SENSORS.items())[i % len(SENSORS)]
        frame[f"{quantity}_{i // len(SENSORS) + 1}"] = measured(score, mean, spread, decimals)
    return pd.DataFrame(frame)


def survey(rows):
    """Eighteen statements on six topics, answers in words; three groups of opinion."""
    n_topics, n_each = 6, 3
    opinions = np.array([[1, 1, -1, -1, 0.5, 0], [-1, 1, 1, 0, -1, 0.5], [0, -1, 0, 1, 1, -1]])
    opinions = opinions[:, rows.rng.permutation(n_topics)]
    pattern = np.repeat(opinions, n_each, axis=1)
    scores = rows.scores(pattern, rows.rng.uniform(6, 7), common=0.3, n_factors=3).T
    age = np.clip(measured(rows.noise()[0], 46, 16, 0), 18, 90).astype(int)
    frame = {
        "respondent": rows.ids(1),
        "age": age,
        "gender": rows.category(["woman", "man", "no answer"], [0.5, 0.47, 0.03]),
        "education": rows.category(["primary", "secondary", "tertiary"], [0.2, 0.5, 0.3]),
        "region": rows.category(["urban", "suburban", "rural"], [0.4, 0.35, 0.25]),
    }
    for i, score in enumerate(scores):
        cuts = np.array([-1.5, -0.5, 0.5, 1.5]) + rows.rng.uniform(-0.3, 0.3)
        answer = np.asarray(LIKERT)[np.searchsorted(cuts, score)]
        frame[f"q{i // n_each + 1}{'abc'[i % n_each]}"] = answer
    return pd.DataFrame(frame)


def sales(rows):
    """Orders of four kinds: everyday, single expensive goods, bulk, and clearance."""
    quantity, price, discount, weight, handling = rows.scores(
        [[0, 0, 0, 0, 0], [-0.3, 2, -0.2, 0.6, 1], [2, -0.2, 0.8, 2, 0.5], [0.4, -1.2, 2, 0, -1]],
        rows.rng.uniform(5, 6),
    ).T
    quantity = 1 + rows.counts(12 * np.exp(0.35 * quantity))
    price = skewed(price, 24, 0.35)
    discount = np.clip(measured(discount, 8, 2, 1), 0, 90)
    ordered = rows.days("2023-01-01", 365)
    return pd.DataFrame(
        {
            "order_id": rows.ids(500_000),
            "order_date": ordered,
            "delivery_date": ordered + 2 + rows.rng.poisson(3, rows.n),
            "store": rows.category([f"S{i:02d}" for i in range(1, 9)], np.full(8, 1 / 8)),
            "category": rows.category(
                ["home", "garden", "toys", "sport"],
                [0.4, 0.2, 0.2, 0.2],
                [0.5, 0.2, 0.1, 0.2],
                [0.3, 0.3, 0.2, 0.2],
                [0.3, 0.2, 0.3, 0.2],
            ),
            "quantity": quantity,
            "unit_price": price,
            "discount_percent": discount,
            "revenue": np.round(quantity * price * (1 - discount / 100), 2),
            "weight_kg": skewed(weight, 3.5, 0.4, 2),
            "handling_minutes": measured(handling, 35, 4, 0),
            "is_gift": rows.flag(0.15),
            "currency": np.full(rows.n, "EUR"),
        }
    )


def clinical(rows):
    """Laboratory values of patients with and without a disease, 5 to 20 % missing per column."""
    pattern = np.array([[0] * 14, [1.5, 1.3, 1, -1, 1, 0.8, -0.8, 0.6, 1, -0.5, 0, 0, 0, 0]])
    scores = rows.scores(pattern, rows.rng.uniform(5.5, 6.5), common=0.25, n_factors=3).T
    age = np.clip(measured(rows.noise()[0], 58, 15, 0), 18, 98)
    laboratory = {
        "glucose_mg_dl": skewed(scores[0], 96, 0.16, 0),
        "crp_mg_l": skewed(scores[1], 3.1, 0.7, 1),
        "leukocytes_g_l": skewed(scores[2], 6.8, 0.22, 1),
        "hemoglobin_g_dl": measured(scores[3], 14.1, 1.1, 1),
        "creatinine_mg_dl": skewed(scores[4], 0.9, 0.2, 2),
        "alt_u_l": skewed(scores[5], 24, 0.4, 0),
        "albumin_g_dl": measured(scores[6], 4.2, 0.3, 1),
        "ldh_u_l": skewed(scores[7], 180, 0.18, 0),
        "lactate_mmol_l": skewed(scores[8], 1.2, 0.3, 1),
        "platelets_g_l": measured(scores[9], 240, 45, 0),
        "sodium_mmol_l": measured(scores[10], 140, 2.6, 0),
        "potassium_mmol_l": measured(scores[11], 4.2, 0.35, 1),
        "systolic_mm_hg": measured(scores[12], 131, 16, 0),
        "heart_rate": measured(scores[13], 76, 11, 0),
    }
    frame = pd.DataFrame(
        {
            "patient_id": rows.ids(7_000_000),
            "admitted": rows.days("2022-01-01", 700),
            "sex": rows.category(["f", "m"], [0.5, 0.5]),
            "age": age.astype(int),
            "smoker": rows.yes_no(0.2, 0.28),
            "ward": rows.category(["1A", "1B", "2A", "2B"], [0.3, 0.3, 0.2, 0.2]),
            **laboratory,
        }
    )
    return rows.with_missing(frame, [*laboratory, "smoker"], 0.05, 0.20, age)


def web_counts(rows):
    """Visits of a web site, counted: readers, searchers and buyers."""
    means = {  # readers, searchers, buyers; dispersion
        "pages": ((9, 22, 30), 0.05),
        "articles_read": ((7, 2.5, 2), 0.0),
        "searches": ((0.8, 9, 4), 0.1),
        "filters_used": ((0.3, 6, 3), 0.1),
        "product_views": ((0.6, 6, 16), 0.05),
        "cart_adds": ((0.1, 0.4, 5), 0.0),
        "videos": ((1.2, 1.2, 1.2), 0.3),
        "errors": ((0.3, 0.3, 0.3), 0.0),
    }
    frame = {"session": rows.ids(10**8, "{:x}")}
    for name, (rates, dispersion) in means.items():
        log_rate = rows.members @ np.log(rates) + 0.15 * rows.noise()[0]
        frame[name] = rows.counts(np.exp(log_rate), dispersion)
    frame["seconds"] = skewed(rows.noise()[0], 240, 0.5, 0).astype(int)
    frame["device"] = rows.category(["phone", "desktop", "tablet"], [0.6, 0.33, 0.07])
    frame["country"] = rows.category(["DE", "FR", "IT", "PL", "ES"], [0.4, 0.2, 0.2, 0.1, 0.1])
    return pd.DataFrame(frame)


QUESTIONS = {
    "housing": ("owner", "tenant", "with family"),
    "transport": ("car", "bus", "bicycle", "on foot"),
    "news": ("television", "newspaper", "online", "radio", "none"),
    "phone": ("contract", "prepaid", "none"),
    "shopping": ("supermarket", "discount", "market", "online"),
    "holiday": ("beach", "mountains", "city", "home"),
    "sport": ("gym", "club", "alone", "never"),
    "insurance": ("full", "basic", "none"),
    "pet": ("cat", "dog", "other", "none"),
    "bank": ("branch", "online", "both"),
    "heating": ("gas", "oil", "heat pump", "district", "wood"),
    "diet": ("everything", "vegetarian", "vegan"),
}


def mostly_categorical(rows):
    """Twelve answers of a latent class model; in a class, one level of each is usual."""
    frame = {"case_no": rows.ids(1)}
    for name, levels in QUESTIONS.items():
        usual = rows.rng.permutation(len(levels))[: rows.k]
        strength = rows.rng.uniform(0.7, 0.85)
        chances = np.full((rows.k, len(levels)), (1 - strength) / (len(levels) - 1))
        chances[np.arange(rows.k), usual] = strength
        frame[name] = rows.category(levels, *chances)
    age, income = rows.noise(2, common=0.2)
    frame["age"] = np.clip(measured(age, 45, 15, 0), 18, 95).astype(int)
    frame["income"] = skewed(income, 2700, 0.45, -1).astype(int)
    return pd.DataFrame(frame)


def text_counts(rows):
    """Documents of three topics as counts of 300 words; each topic has 40 typical words."""
    n_own = 40
    order = rows.rng.permutation(N_WORDS)
    usual = 1.0 / (5 + np.arange(N_WORDS))[rows.rng.permutation(N_WORDS)]
    boost = np.zeros((rows.k, N_WORDS))
    for topic in range(rows.k):
        boost[topic, order[topic * n_own : (topic + 1) * n_own]] = np.log(5.0)
    log_rate = np.log(usual) + rows.members @ boost
    log_rate += 0.2 * rows.rng.normal(size=log_rate.shape)
    length = 120 * np.exp(0.4 * rows.noise()[0])
    rate = np.exp(log_rate)
    words = rows.counts(length[:, None] * rate / rate.sum(axis=1, keepdims=True))
    frame = pd.DataFrame(words, columns=[f"word_{i:03d}" for i in range(N_WORDS)])
    frame.insert(0, "document", rows.ids(1, "doc{:05d}"))
    return frame


def wide(rows):
    """Expression of 3,000 genes in 150 samples; a fifth of the genes differ between types."""
    pattern = np.zeros((rows.k, N_GENES))
    chosen = rows.rng.permutation(N_GENES)[: N_GENES // 5]
    pattern[:, chosen] = rows.rng.normal(size=(rows.k, chosen.size))
    scores = rows.scores(pattern, rows.rng.uniform(20, 24), common=0.1, n_factors=10)
    level, spread = rows.rng.uniform(3, 12, N_GENES), rows.rng.uniform(0.3, 1.0, N_GENES)
    frame = pd.DataFrame(
        np.round(level + spread * scores, 2), columns=[f"gene_{i:04d}" for i in range(N_GENES)]
    )
    frame.insert(0, "batch", rows.category(["plate 1", "plate 2", "plate 3"], np.full(3, 1 / 3)))
    frame.insert(0, "sample", rows.ids(1, "GS{:04d}"))
    return frame


def outliers(rows):
    """Parts of five types; in 1 % of the rows one or two values are ten or a hundred times off."""
    pattern = rows.rng.normal(size=(rows.k, 8))
    scores = rows.scores(pattern, rows.rng.uniform(5, 6)).T
    units = {
        "length_mm": (120, 4, 1),
        "width_mm": (45, 1.5, 1),
        "weight_g": (310, 14, 0),
        "hardness_hv": (220, 9, 0),
        "roughness_um": (3.2, 0.25, 2),
        "torque_nm": (18, 0.8, 2),
        "gap_mm": (0.9, 0.05, 3),
        "temperature_c": (71, 3, 1),
    }
    frame = pd.DataFrame(
        {
            name: measured(score, *unit).astype(float)
            for score, (name, unit) in zip(scores, units.items(), strict=True)
        }
    )
    for row in rows.rng.permutation(rows.n)[: max(1, round(0.01 * rows.n))]:
        for column in rows.rng.permutation(len(units))[: rows.rng.integers(1, 3)]:
            frame.iat[row, column] *= rows.rng.choice([0.01, 0.1, 10.0, 100.0])
    frame.insert(0, "line", rows.category(["L1", "L2"], [0.6, 0.4]))
    frame.insert(0, "part_no", rows.ids(20_000))
    return frame


def households(rows):
    """Electricity use: ordinary households, households with a heat pump, small shops."""
    scores = rows.scores(
        [[0] * 8, [0.3, 1.6, 1, 0, 1.4, -0.4, 0, 0.4], [1.8, -0.6, 1.2, 1.2, 0, 1, -0.8, 0]],
        rows.rng.uniform(5, 6),
    ).T
    return pd.DataFrame(
        {
            "meter": rows.ids(40_000_000),
            "day_kwh": skewed(scores[0], 7.5, 0.3),
            "night_kwh": skewed(scores[1], 2.8, 0.35),
            "peak_kw": skewed(scores[2], 3.4, 0.25),
            "weekend_share": measured(scores[3], 0.31, 0.025, 3),
            "winter_ratio": measured(scores[4], 1.5, 0.15, 2),
            "base_load_w": skewed(scores[5], 160, 0.3, 0),
            "evening_share": measured(scores[6], 0.37, 0.035, 3),
            "area_m2": skewed(scores[7], 95, 0.28, 0),
            "built": np.clip(measured(rows.noise()[0], 1978, 22, 0), 1890, 2023).astype(int),
            "tariff": rows.category(["standard", "green", "night"], [0.6, 0.3, 0.1]),
            "smart_meter": rows.flag(0.35),
        }
    )


def machines(rows):
    """Machines in operation: most intact, some with a worn bearing, a few with a leak."""
    scores = rows.scores(
        [[0] * 9, [1.5, 1.5, 0.6, 0, 1, 0, 0, 0, 0], [0, 0.3, 0, -1.8, 0.5, -1.5, 1, 0, 0]],
        rows.rng.uniform(6, 7),
    ).T
    return pd.DataFrame(
        {
            "vibration_x_mm_s": skewed(scores[0], 1.8, 0.2, 2),
            "vibration_y_mm_s": skewed(scores[1], 2.1, 0.2, 2),
            "bearing_c": measured(scores[2], 58, 4, 1),
            "oil_bar": measured(scores[3], 4.6, 0.3, 2),
            "noise_db": measured(scores[4], 71, 2.2, 1),
            "coolant_l": measured(scores[5], 38, 1.4, 1),
            "power_kw": measured(scores[6], 22, 1.6, 1),
            "voltage_v": measured(scores[7], 399, 2.8, 1),
            "load_percent": measured(scores[8], 63, 9, 0),
            "hours": skewed(rows.noise()[0], 5200, 0.6, 0).astype(int),
            "model": rows.category(["M200", "M250", "M300"], [0.5, 0.3, 0.2]),
        }
    )


def blobs_and_yes_no(rows):
    """Four round groups in six columns, and an unrelated column of yes and no."""
    pattern = rows.rng.normal(size=(rows.k, 6))
    scores = rows.scores(pattern, rows.rng.uniform(5, 6), common=0.0).T
    frame = {f"x{i + 1}": np.round(score, 3) for i, score in enumerate(scores)}
    return pd.DataFrame({**frame, "approved": rows.yes_no(0.5)})
