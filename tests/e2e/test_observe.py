# SPDX-License-Identifier: Apache-2.0
"""What programs see of a run: events as lines of JSON, and metrics that a real Prometheus scrapes."""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request

import pytest

from conftest import BIN, DDPRUN, REPO, clean_environment, finish_all, free_port, run, start, takes_less, wait_for


def get(url):
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.read().decode()
    except (urllib.error.URLError, ConnectionError):
        return ""


GRAFANA = REPO / "deploy" / "grafana"
ONE_STEP = """import os, socket, time
socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"STEP=1\\nRATE=3\\nUNIT=images", os.environ["DDPRUN_NOTIFY_SOCKET"])
time.sleep(100)"""


def dashboard_queries():
    dashboard = json.loads((GRAFANA / "ddprun.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert len(queries) > 10
    return [query.replace("$run", ".*").replace("$__rate_interval", "1m") for query in queries]


def test_dashboard_and_alerts_ask_for_metrics_that_there_are():
    sources = "".join((REPO / "rendezvous" / "observe" / f"{name}.cc").read_text() for name in ("metrics",))
    texts = [*dashboard_queries(), (GRAFANA / "alerts.yml").read_text()]
    asked = {name for text in texts for name in re.findall(r"ddprun_[a-z_]+", text)}
    unknown = {name for name in asked if f'"{re.sub("_(sum|count)$", "", name)}"' not in sources}
    assert not unknown


def events(path):
    return [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]


def test_events_of_a_node_and_of_the_whole_run(tmp_path, port):
    service = start(
        [BIN / "ddprun-rendezvous", "--port", port, "--rdzv-id", "job", "--event-log", tmp_path / "service"]
    )
    assert "listening" in service.stdout.readline()
    nodes = [
        start(
            [DDPRUN, "--nnodes", 2, "--rdzv-endpoint", f"127.0.0.1:{port}", "--node-rank", rank, "--max-restarts", 1]
            + ["--event-log", tmp_path / f"node{rank}", "sh", "-c"]
            + ["[ $RANK = 1 ] && [ $TORCHELASTIC_RESTART_COUNT = 0 ] && exit 7; sleep 0.1"]
        )
        for rank in range(2)
    ]
    assert [code for code, _, _ in finish_all(nodes)] == [0, 0]
    service.terminate()
    service.communicate(timeout=30)

    whole = events(tmp_path / "service")
    names = [event["event"] for event in whole]
    assert names[:2] == ["node.joined"] * 2
    assert [name for name in names if not name.startswith("node.")] == [
        "round.started", "round.broken", "restart", "round.started", "run.finished",
    ]
    broken = next(event for event in whole if event["event"] == "round.broken")
    assert broken["exit_code"] == 7 and broken["cause_rank"] == 1 and broken["run"] == "job"

    node = events(tmp_path / "node1")
    ended = [event for event in node if event["event"] == "worker.ended"]
    assert [event["name"].rsplit(".")[-1] for event in ended] == ["FAILED", "SUCCEEDED"]
    assert ended[0]["exit_code"] == 7 and ended[0]["rank"] == 1 and ended[0]["round"] == 1
    started = [event for event in node if event["event"] == "worker.started"]
    assert [event["pid"] for event in started] == [event["pid"] for event in ended]
    assert node[0]["event"] == "agent.started" and node[-1]["event"] == "agent.ended"
    times = [event["monotonic"] for event in node]
    assert times == sorted(times)


def test_a_full_disk_stops_nothing():
    ended = run([DDPRUN, "--standalone", "--event-log", "/dev/full", "true"], timeout=60)
    assert ended.returncode == 0, ended.stderr


def test_metrics_as_a_scraper_sees_them(tmp_path):
    metrics = free_port()
    node = start(
        [DDPRUN, "--rdzv-id", "job", "--nproc-per-node", 2, "--metrics-port", metrics, "sleep", "100"]
    )
    url = f"http://127.0.0.1:{metrics}/metrics"
    text = wait_for("a scrape", lambda: (page := get(url)) and "ddprun_agent_workers 2" in page and page)
    assert 'ddprun_run_phase{run="job",phase="running"} 1' in text
    assert 'ddprun_run_world_size{run="job"} 2' in text
    assert 'ddprun_run_rounds_total{run="job"} 1' in text
    assert 'ddprun_run_rendezvous_seconds_count{run="job"} 1' in text
    assert "ddprun_build_info" in text and "process_resident_memory_bytes" in text
    if shutil.which("promtool"):
        checked = subprocess.run(["promtool", "check", "metrics"], input=text, text=True, capture_output=True)
        assert checked.returncode == 0 and not checked.stderr, checked.stdout + checked.stderr
    node.terminate()
    assert finish_all([node])[0][0] == 143


@pytest.mark.parametrize("flag", ["--metrics-port", "--web"])
def test_a_run_that_is_watched_ends_as_fast(flag):
    """CivetWeb looks for its end every 2 s: without more, each run takes as long."""

    def a_run():
        assert run([DDPRUN, flag, free_port(), "true"]).returncode == 0

    assert takes_less(1.5, a_run)


def test_a_port_in_use_is_one_sentence():
    metrics = free_port()
    first = start([DDPRUN, "--standalone", "--metrics-port", metrics, "sleep", "100"])
    wait_for("a scrape", lambda: get(f"http://127.0.0.1:{metrics}/metrics"))
    second = run([DDPRUN, "--standalone", "--metrics-port", metrics, "true"], timeout=60)
    assert second.returncode == 1
    assert "cannot serve metrics at" in second.stderr and len(second.stderr.splitlines()) == 1
    first.terminate()
    finish_all([first])


@pytest.mark.skipif(not shutil.which("prometheus"), reason="the package prometheus is not installed")
def test_a_real_prometheus_scrapes_it(tmp_path):
    metrics, own = free_port(), free_port()
    node = start([DDPRUN, "--rdzv-id", "job", "--nproc-per-node", 2, "--metrics-port", metrics, sys.executable, "-c", ONE_STEP])
    rules = (GRAFANA / "alerts.yml").read_text()
    assert "> 600" in rules
    (tmp_path / "alerts.yml").write_text(rules.replace("> 600", "> 1"))
    (tmp_path / "prometheus.yml").write_text(
        "global: {scrape_interval: 200ms, scrape_timeout: 200ms, evaluation_interval: 200ms}\nrule_files: [alerts.yml]\n"
        f"scrape_configs: [{{job_name: ddprun, static_configs: [{{targets: ['127.0.0.1:{metrics}']}}]}}]\n"
    )
    prometheus = subprocess.Popen(
        ["prometheus", f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data"]
        + [f"--web.listen-address=127.0.0.1:{own}"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=clean_environment(),
    )
    try:
        def api(path):
            page = get(f"http://127.0.0.1:{own}/api/v1/{path}")
            return page and json.loads(page)["data"]

        def ask(query):
            data = api("query?" + urllib.parse.urlencode({"query": query}))
            return data and [found["value"][1] for found in data["result"]]

        assert wait_for("a sample", lambda: ask('ddprun_run_world_size{run="job"}')) == ["2"]
        assert ask('ddprun_run_phase{phase="running"}') == ["1"]
        assert ask('up{job="ddprun"}') == ["1"]
        assert ask('sum(ddprun_run_nodes)') == ["1"]
        # The dashboard's queries are accepted, and those of a run like this one have something to show.
        shown = {query for query in dashboard_queries() if ask(query)}
        assert all(ask(query) is not None for query in dashboard_queries())
        assert {query for query in dashboard_queries() if "slowness" not in query and "rate(" not in query and "increase(" not in query} <= shown
        # The only alert of a run that makes no step: it says for which run.
        found = wait_for("an alert", lambda: [one for one in api("alerts")["alerts"] if one["state"] == "firing"])
        assert [one["labels"]["alertname"] for one in found] == ["DdprunNoProgress"]
        assert found[0]["annotations"]["summary"].startswith("Run job has made no step for ")
    finally:
        prometheus.terminate()
        prometheus.wait(timeout=30)
        node.terminate()
        finish_all([node])
