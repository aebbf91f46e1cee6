"""Peer: dlt, filesystem destination, Iceberg table format. `IN.jsonl FOLDER`; prints rows and seconds."""

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ["DLT_TELEMETRY"] = "false"
os.environ["RUNTIME__DLTHUB_TELEMETRY"] = "false"

import dlt

source, folder = Path(sys.argv[1]), Path(sys.argv[2])


@dlt.resource(name="events", table_format="iceberg", max_table_nesting=0)
def events() -> Iterator[list[dict[str, Any]]]:
    batch: list[dict[str, Any]] = []
    with source.open("rb") as lines:
        for line in lines:
            batch.append(json.loads(line))
            if len(batch) == 1000:
                yield batch
                batch = []
    yield batch


started = time.perf_counter()
destination = dlt.destinations.filesystem(bucket_url=folder.resolve().as_uri())
pipeline = dlt.pipeline("bench", destination=destination, dataset_name="d", pipelines_dir=str(folder / "state"))
info = pipeline.run(events(), loader_file_format="parquet")
info.raise_on_failed_jobs()
print("done", time.perf_counter() - started)
