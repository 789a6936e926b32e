"""Prediction of Parquet datasets by Ray Data."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from robustpll import InputError, PLLClassifier
from robustpll.tables.on_ray import predict_parquet


@pytest.fixture
def rows() -> pd.DataFrame:
    random = np.random.default_rng(0)
    frame = pd.DataFrame(random.normal(size=(500, 3)), columns=["a", "b", "c"])
    return frame.assign(id=np.arange(500), colour=random.choice(["red", "blue"], 500))


@pytest.fixture
def model(rows: pd.DataFrame, tmp_path: Path) -> Path:
    y = np.where(rows["a"] > 0, "up", "down")
    classifier = PLLClassifier("pl_knn").fit(rows[["a", "b", "colour"]], y)
    classifier.save(tmp_path / "model.pll")
    return tmp_path / "model.pll"


@pytest.mark.ray
@pytest.mark.filterwarnings("ignore")  # of Ray
def test_a_folder_of_files_is_predicted_as_in_one_process(
    rows: pd.DataFrame, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from robustpll import load

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_ADDRESS", "local")  # join no cluster of others
    (tmp_path / "rows").mkdir()
    for part in range(3):
        rows[part::3].to_parquet(tmp_path / "rows" / f"{part}.parquet")
    assert predict_parquet(model, tmp_path / "rows", tmp_path / "answers", device="cpu") == 500
    written = pd.read_parquet(tmp_path / "answers").sort_values("id").reset_index(drop=True)
    opinion = load(model).predict_opinion(rows[["a", "b", "colour"]])
    assert (written["label"] == opinion.classes[opinion.predicted()]).all()
    np.testing.assert_allclose(written["probability"], opinion.probability.max(-1), atol=1e-6)
    np.testing.assert_allclose(written["entropy"], opinion.entropy, atol=1e-6)
    pd.testing.assert_frame_equal(written[list(rows.columns)], rows)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["answers", "model.pll", "rows"]
    with pytest.raises(InputError, match="must be a new folder"):
        predict_parquet(model, tmp_path / "rows", tmp_path / "answers")


def test_what_cannot_be_predicted_is_refused_before_ray_starts(
    rows: pd.DataFrame, model: Path, tmp_path: Path
) -> None:
    cases: dict[str, Any] = {
        "lacks columns of the training: colour": rows.drop(columns="colour"),
        "has a column 'label' already": rows.assign(label="x"),
    }
    for message, frame in cases.items():
        frame.to_parquet(tmp_path / "rows.parquet")
        with pytest.raises(InputError, match=message):
            predict_parquet(model, tmp_path / "rows.parquet", tmp_path / "answers")
    with pytest.raises(InputError, match="must be a Parquet file"):
        predict_parquet(model, tmp_path / "nothing", tmp_path / "answers")
    with pytest.raises(InputError, match="cluster must be"):
        predict_parquet(model, tmp_path, tmp_path / "answers", cluster="local")
    assert not (tmp_path / "answers").exists()


def test_pickles_in_columns_of_rays_own_types_are_not_read(
    rows: pd.DataFrame, model: Path, tmp_path: Path
) -> None:
    table = pa.Table.from_pandas(rows)
    about = {"ARROW:extension:name": "ray.data.arrow_pickled_object"}
    field = pa.field("evil", pa.binary(), metadata=about)
    table = table.append_column(field, pa.array([b"cos\nsystem\n"] * len(rows)))
    pq.write_table(table, tmp_path / "rows.parquet")
    with pytest.raises(InputError, match="columns of Ray's own types"):
        predict_parquet(model, tmp_path / "rows.parquet", tmp_path / "answers")
