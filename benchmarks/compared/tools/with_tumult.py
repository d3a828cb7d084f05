"""Tumult Analytics, on Spark in this process."""

from __future__ import annotations

import os
import sys
from typing import Any

import given as shared
from pyspark.sql import SparkSession
from tmlt.analytics import AddOneRow, KeySet, PureDPBudget, QueryBuilder, RhoZCDPBudget, Session


def prepare(given: dict[str, Any]) -> Any:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark.read.csv(given["file"], header=True, inferSchema=True).cache()


def query_of(given: dict[str, Any], question: dict[str, Any]) -> Any:
    query: Any = QueryBuilder("couples")
    if question["where"]:
        query = query.filter(" AND ".join(f"{name} = {code}" for name, code in question["where"].items()))
    if question["by"]:
        query = query.groupby(KeySet.from_dict({name: list(range(given["sizes"][name])) for name in question["by"]}))
    if question["kind"] in ("count", "table"):
        return query.count("value")
    lower, upper, _ = given["numbers"][question["of"]]
    make = query.average if question["kind"] == "mean" else query.median
    return make(question["of"], lower, upper, "value")


def answer(frame: Any, given: dict[str, Any], job: dict[str, Any]) -> list[shared.Told]:
    questions, epsilon = job["questions"], job["epsilon"]
    if len(questions) == 1:
        whole: Any = PureDPBudget(epsilon)
        part = whole
    else:
        # Gaussian noise, which for several questions is less.
        rho = shared.rho_of(epsilon, given["delta"])
        whole, part = RhoZCDPBudget(rho), RhoZCDPBudget(rho / len(questions) * (1 - 1e-9))
    session = Session.from_dataframe(whole, "couples", frame, protected_change=AddOneRow())
    found = []
    for question in questions:
        rows = session.evaluate(query_of(given, question), part).collect()
        found.append([([int(row[name]) for name in question["by"]], float(row["value"])) for row in rows])
    return found


shared.run(prepare, answer)
