"""Where a value comes from, and what is said about a wrong one."""

from __future__ import annotations

from pathlib import Path

import pytest

from catalog.errors import ConfigurationError
from ingest.settings import FileSourceSettings, StdinSourceSettings
from skipprd.config import SETTINGS
from skipprd.config_docs import page
from skipprd.sections import Configuration

ROOT = Path(__file__).parents[3]
GOOD = """\
skippr: {workspace: dev}
pipelines:
  rides: {data_source: data_sources.rides, data_sink: data_sinks.lake, deadletter_sink: data_sinks.lake}
data_sources:
  rides: {File: {path: ./in, csv_null_values: ["", NULL, "NA"]}}
data_sinks:
  lake: {Iceberg: {table_namespace: bronze.raw, catalog: {type: skippr, warehouse: ./lake}}}
"""


def configured(folder: Path, text: str = GOOD, *, flags: dict[str, str] | None = None, env: dict[str, str] | None = None) -> Configuration:
    (folder / "skippr.yml").write_text(text)
    return Configuration(flags or {}, env or {}, folder)


def errors(config: Configuration) -> list[str]:
    return [f.message for f in config.findings if f.severity == "error"]


def test_the_whole_shape(tmp_path: Path) -> None:
    config = configured(tmp_path)
    spec = config.pipeline("rides")
    assert str(spec.key) == "default#dev#rides"
    assert spec.sink.namespace == ("bronze", "raw")
    assert spec.sink.warehouse == tmp_path / "lake"
    assert isinstance(spec.source.settings, FileSourceSettings)
    assert spec.source.settings.path == str(tmp_path / "in")
    assert spec.source.settings.decode.csv_null_values == ("", "NULL", "NA")
    assert config.query_sink() == spec.sink


def test_flag_beats_environment_beats_dotenv_beats_file_beats_default(tmp_path: Path) -> None:
    text = GOOD.replace("{workspace: dev}", "{workspace: dev, tenant: from-file}")
    assert configured(tmp_path, GOOD).values.text("tenant") == "default"
    assert configured(tmp_path, text).values.text("tenant") == "from-file"
    (tmp_path / ".env").write_text("# comment\nexport SKIPPR_TENANT='from-dotenv'\n")
    assert configured(tmp_path, text).values.text("tenant") == "from-dotenv"
    env = {"SKIPPR_TENANT": "from-env"}
    assert configured(tmp_path, text, env=env).values.text("tenant") == "from-env"
    config = configured(tmp_path, text, env=env, flags={"tenant": "from-flag"})
    assert config.values.text("tenant") == "from-flag"
    assert config.values.origin("tenant") == "flag --tenant"


def test_relative_paths_start_where_they_were_written(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "skippr.yml").write_text("skippr: {data_dir: ./d}\n")
    flags = {"config": "project/skippr.yml"}
    assert Configuration(flags, {}, tmp_path).values.path("data_dir") == project / "d"
    assert Configuration(flags, {"DATA_DIR": "./d"}, tmp_path).values.path("data_dir") == tmp_path / "d"


def test_values_as_text(tmp_path: Path) -> None:
    text = "skippr: {buffer_threshold_bytes: 2 MiB, buffer_threshold_seconds: PT1M30S, tenant: 007, transform_namespace_fields: [a, b]}\n"
    values = configured(tmp_path, text, env={"SKIPPR_COMPACTION_COMMIT_SECONDS": "250ms", "SCHEMA_AUTO_APPROVE": "off"}).values
    assert values.count("buffer_threshold_bytes") == 2 * 2**20
    assert values.seconds("buffer_threshold_seconds") == 90.0
    assert values.seconds("compaction_commit_seconds") == 0.25
    assert values.text("tenant") == "007"
    assert values.texts("transform_namespace_fields") == ("a", "b")
    assert values.on("schema_auto_approve") is False


def test_transform_of_a_pipeline(tmp_path: Path) -> None:
    text = GOOD.replace("lake, deadletter_sink: data_sinks.lake}", "lake, transform: {partition_fields: [x], batch_time_unit: hour}}")
    text = text.replace("{workspace: dev}", "{transform_batch_order_fields: o, transform_batch_partition_fields: general}")
    transform = configured(tmp_path, text).pipeline("rides").transform
    assert (transform.partition_fields, transform.time_unit, transform.order_fields) == (("x",), "hour", ("o",))
    overridden = configured(tmp_path, text, env={"TRANSFORM_BATCH_PARTITION_FIELDS": "e,f"}).pipeline("rides").transform
    assert overridden.partition_fields == ("e", "f")
    twice = text.replace("partition_fields: [x]", "partition_fields: [x], batch_partition_fields: [y]")
    assert "means the same as partition_fields" in errors(configured(tmp_path, twice))[0]


def test_variables(tmp_path: Path) -> None:
    text = GOOD.replace("path: ./in", "path: '${IN_PATH}'")
    unset = configured(tmp_path, text)
    with pytest.raises(ConfigurationError, match=r"skippr\.yml:5 \(data_sources\.rides\.File\.path\): \$\{IN_PATH\} .* is not set; export"):
        unset.pipeline("rides")
    unset.query_sink()  # what does not need the source works without it
    (tmp_path / ".env").write_text("IN_PATH=/srv/in\n")
    settings = configured(tmp_path, text).pipeline("rides").source.settings
    assert isinstance(settings, FileSourceSettings)
    assert settings.path == "/srv/in"
    partial = configured(tmp_path, GOOD.replace("path: ./in", "path: 'a/${IN_PATH}'"))
    assert "only a whole value may be ${NAME}" in errors(partial)[0]


def test_stdin_id_of_flag_before_file(tmp_path: Path) -> None:
    text = GOOD.replace("File: {path: ./in, csv_null_values", "Stdin: {stdin_id: a, csv_null_values")
    for flags, want in (({}, "a"), ({"stdin_id": "b"}, "b")):
        settings = configured(tmp_path, text, flags=flags).pipeline("rides").source.settings
        assert isinstance(settings, StdinSourceSettings)
        assert settings.stdin_id == want


@pytest.mark.parametrize(("before", "after", "message"), [
    ("skippr: {", "skipper: {", "skippr.yml:1 (skipper): unknown key 'skipper'; did you mean skippr?"),
    ("workspace: dev", "workspce: dev", "skippr.yml:1 (skippr.workspce): unknown key 'workspce'; did you mean workspace?"),
    ("data_sink: data_sinks.lake,", "data_snk: data_sinks.lake,", "unknown key 'data_snk'; did you mean data_sink"),
    ("data_sinks.lake, d", "data_sinks.lak, d", "'data_sinks.lak' is not one of the data_sinks; did you mean data_sinks.lake?"),
    ("path: ./in", "pth: ./in", "skippr.yml:5 (data_sources.rides.File.pth): unknown key 'pth'; did you mean path?"),
    ("{File:", "{Fil:", "there is no source plugin 'Fil'; did you mean File?"),
    ("{Iceberg:", "{Icebrg:", "there is no sink 'Icebrg'; did you mean Iceberg?"),
    ("{path: ./in", "{path: {a: b}", "skippr.yml:5 (data_sources.rides.File.path): expected a single value, found a map"),
    ("workspace: dev", "workspace: 'a b'", "workspace 'a b' (from skippr.yml:1 (skippr.workspace)) is not allowed"),
    ("  rides: {data_source", "  'r#s': {data_source", "pipeline 'r#s' (from skippr.yml:3 (pipelines.r#s)) is not allowed"),
    ("workspace: dev", "buffer_threshold_bytes: ten", "'ten' is not allowed: write a size such as 10MiB"),
    ("workspace: dev", "wal_storage: s3", "wal_storage 's3' (from skippr.yml:1 (skippr.wal_storage)) is not available in this version"),
    ("workspace: dev", "offset_store: dynamodb", "offset_store 'dynamodb'"),
    ("workspace: dev", "flight_bind: 0.0.0.0:1", "is reachable from other machines"),
    ("type: skippr", "type: glue", "'glue' is not allowed: write one of skippr"),
    ("bronze.raw", "bronze..raw", "has an empty level"),
    ("skippr: {workspace: dev}", "source_coordination: {store: {}}", "source_coordination is not available in this version"),
])
def test_wrong_values_name_value_place_and_remedy(tmp_path: Path, before: str, after: str, message: str) -> None:
    assert before in GOOD
    found = errors(configured(tmp_path, GOOD.replace(before, after, 1)))
    assert any(message in text for text in found), found


@pytest.mark.parametrize(("before", "after", "message"), [
    ("File: {path: ./in", "S3: {bucket: b", "the source S3 is not available in this version"),
    ("./lake", "s3://lake/", "s3:// is not available in this version"),
    ("type: skippr,", "table: t,", "a catalog in DynamoDB is not available in this version"),
])
def test_what_this_version_has_not_stops_only_its_users(tmp_path: Path, before: str, after: str, message: str) -> None:
    config = configured(tmp_path, GOOD.replace(before, after, 1))
    config.check()
    with pytest.raises(ConfigurationError, match=message):
        config.pipeline("rides")


@pytest.mark.parametrize(("text", "message"), [
    ("a: [", r"skippr\.yml:2: not valid YAML"),
    ("skippr: {}\nskippr: {}\n", r"skippr\.yml:2: the key 'skippr' is there twice \(first on line 1\)"),
    ("- a\n", r"skippr\.yml:1: the file must be a map"),
    ("a: &x {b: *x}\n", r"nested more than|not valid YAML"),
    ("skippr:\n\tworkspace: dev\n", r"skippr\.yml:2: not valid YAML"),
])
def test_yaml_errors_have_lines(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        configured(tmp_path, text)


def test_missing_and_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"other\.yml: there is no such file; name one with --config"):
        Configuration({"config": "other.yml"}, {}, tmp_path)
    (tmp_path / "skippr.yml").write_bytes(b"a: b\nc: \xff\n")
    with pytest.raises(ConfigurationError, match=r"skippr\.yml:2: not UTF-8"):
        Configuration({}, {}, tmp_path)


def test_several_warehouses_need_a_choice(tmp_path: Path) -> None:
    text = GOOD + "  other: {Iceberg: {catalog: {warehouse: ./elsewhere}}}\n"
    with pytest.raises(ConfigurationError, match="more than one warehouse; say which to query: --sink lake or --sink other"):
        configured(tmp_path, text).query_sink()
    assert configured(tmp_path, text, flags={"sink": "other"}).query_sink().warehouse == tmp_path / "elsewhere"


def test_unknown_variables_and_later_settings_are_warnings(tmp_path: Path) -> None:
    config = configured(tmp_path, env={"SKIPPR_TENNANT": "x", "SKIPPR_WAL_S3_BUCKET": "b"})
    config.check()
    warnings = [f.message for f in config.findings if f.severity == "warning"]
    assert "environment variable SKIPPR_TENNANT is not a setting; did you mean SKIPPR_TENANT?" in warnings[0]
    assert any("wal_s3_bucket" in text and "has no effect" in text for text in warnings)
    assert any("cluster_id" in text for text in errors(configured(tmp_path, env={"SKIPPR_CLUSTER_ID": "c"})))


def test_three_names_of_every_setting() -> None:
    names = [setting.name for setting in SETTINGS]
    assert len(set(names)) == len(names)
    assert len({setting.env for setting in SETTINGS}) == len(names)
    by_name = {setting.name: setting for setting in SETTINGS}
    assert (by_name["tenant"].env, by_name["tenant"].key, by_name["tenant"].flag) == ("SKIPPR_TENANT", "skippr.tenant", "--tenant")
    unprefixed = {"WAL_STORAGE", "DATA_DIR", "BUFFER_THRESHOLD_BYTES", "BUFFER_THRESHOLD_SECONDS", "WAL_BYTES_PER_FILE",
                  "SCHEMA_AUTO_APPROVE", "RESET_OFFSETS"}
    assert {s.env for s in SETTINGS if not s.prefixed and not s.transform} == unprefixed
    assert all(s.env.startswith("TRANSFORM_") for s in SETTINGS if s.transform)
    for setting in SETTINGS:
        if setting.default is not None:
            setting.type.parse(setting.default)


def test_the_page_is_fresh() -> None:
    assert (ROOT / "docs" / "configuration.md").read_text() == page(), "run: python -m skipprd.config_docs > docs/configuration.md"


def test_examples_are_valid(tmp_path: Path) -> None:
    for path in (ROOT / "examples" / "skippr.yml", ROOT / "skipprd" / "starter.yml"):
        config = Configuration({"config": str(path)}, {}, tmp_path)
        assert errors(config) == []
        for name in config.pipeline_names:
            config.pipeline(name)
