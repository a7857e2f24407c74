# SPDX-License-Identifier: Apache-2.0
"""OpenTelemetry traces of a run, sent to a collector of the test's own on loopback."""

import json
import sys

import pytest
from conftest import DDPRUN, TOKEN, clean_environment, free_port, run, start, takes_less
from http_receiver import Receiver

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
OUTER = {"TRACEPARENT": f"00-{TRACE}-{PARENT}-01"}


class Collector(Receiver):
    def __init__(self, **settings):
        super().__init__(answer=b"{}", **settings)

    def spans(self):
        """All of them, with plain times and attributes."""
        all_spans = []
        for _, _, _, body in self.got:
            (resource,) = json.loads(body)["resourceSpans"]
            for span in resource["scopeSpans"][0]["spans"]:
                span["begin"], span["end"] = int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"])
                span["attributes"] = {one["key"]: next(iter(one["value"].values())) for one in span["attributes"]}
                all_spans.append(span)
        return all_spans

    def environment(self, **more):
        return clean_environment(OTEL_EXPORTER_OTLP_ENDPOINT=self.url, **more)


# Rank 1 dies in round 1. In round 2 rank 0 saves, and waits until its agent has read that it does.
WORKER = """
import array, fcntl, os, socket, sys, termios, time
rank, round = os.environ["RANK"], os.environ["DDPRUN_ROUND"]
with open(f"{sys.argv[1]}/{round}.{rank}", "w") as file:
    file.write(os.environ["TRACEPARENT"])
if round == "1":
    while rank == "0" or not os.path.exists(f"{sys.argv[1]}/1.0"):
        time.sleep(0.02)
    sys.exit(3)
if rank == "0":
    agent = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    agent.connect(os.environ["DDPRUN_NOTIFY_SOCKET"])
    for text in (b"STEP=3\\nSECTION=checkpoint", b"STEP=4\\nSECTION=train"):
        agent.send(text)
        left, deadline = array.array("i", [1]), time.monotonic() + 60
        while left[0] and time.monotonic() < deadline:
            fcntl.ioctl(agent, termios.TIOCOUTQ, left)
            time.sleep(0.01)
"""


def test_a_run_that_recovers_is_one_trace(tmp_path):
    (tmp_path / "worker.py").write_text(WORKER)
    more = {"OTEL_EXPORTER_OTLP_HEADERS": "x-key=a%20b", "OTEL_SERVICE_NAME": "training", **OUTER}
    with Collector() as collector:
        flags = ["--rdzv-id", "job7", "--nproc-per-node", 2, "--max-restarts", 1]
        done = run([DDPRUN, *flags, sys.executable, tmp_path / "worker.py", tmp_path], env=collector.environment(**more))
    assert done.returncode == 0, done.stderr
    for _, path, headers, body in collector.got:
        assert (path, headers["Content-Type"], headers["x-key"]) == ("/v1/traces", "application/json", "a b")
        assert TOKEN.encode() not in body
        attributes = json.loads(body)["resourceSpans"][0]["resource"]["attributes"]
        assert {"key": "service.name", "value": {"stringValue": "training"}} in attributes
    first, recovery, checkpoint, second, whole = sorted(collector.spans(), key=lambda span: span["end"])
    assert [span["name"] for span in (first, recovery, checkpoint, second, whole)] == ["round", "recovery", "checkpoint", "round", "run"]
    assert {span["traceId"] for span in collector.spans()} == {TRACE}
    assert whole["parentSpanId"] == PARENT
    assert [span["parentSpanId"] for span in (first, recovery, second)] == [whole["spanId"]] * 3
    assert checkpoint["parentSpanId"] == second["spanId"] and checkpoint["attributes"]["ddprun.step"] == "3"
    times = [whole["begin"], first["begin"], first["end"], recovery["begin"], recovery["end"], second["begin"]]
    times += [checkpoint["begin"], checkpoint["end"], second["end"], whole["end"]]
    assert times == sorted(times)
    assert first["status"]["code"] == 2 and "rank 1 " in first["status"]["message"]
    assert [span["status"] for span in (recovery, checkpoint, second, whole)] == [{}] * 4
    assert (whole["attributes"]["ddprun.run"], whole["attributes"]["ddprun.restarts"]) == ("job7", "1")
    # Spans of the workers are children of their round's.
    for number, span in (1, first), (2, second):
        for rank in 0, 1:
            assert (tmp_path / f"{number}.{rank}").read_text() == f"00-{TRACE}-{span['spanId']}-01"


def test_workers_of_all_nodes_are_in_the_trace_that_node_0_sends(tmp_path):
    """Node 1 knows of no collector, and has another trace of its own around it."""
    flags = ["--nnodes", 2, "--master-addr", "127.0.0.1", "--master-port", free_port()]
    worker = ["sh", "-c", f"echo $TRACEPARENT > {tmp_path}/$RANK; exit $((RANK * 3))"]
    with Collector() as collector:
        nodes = [
            start([DDPRUN, *flags, "--node-rank", 0, *worker], env=collector.environment()),
            start([DDPRUN, *flags, "--node-rank", 1, *worker], env=clean_environment(**OUTER)),
        ]
        assert [node.wait(timeout=60) for node in nodes] == [3, 3]
    only, whole = sorted(collector.spans(), key=lambda span: span["end"])
    assert [(span["name"], span["status"]["code"], span["attributes"]["ddprun.exit_code"]) for span in (only, whole)] == [
        ("round", 2, "3"),
        ("run", 2, "3"),
    ]
    assert "parentSpanId" not in whole and whole["traceId"] != TRACE
    for rank in 0, 1:
        assert (tmp_path / str(rank)).read_text().strip() == f"00-{whole['traceId']}-{only['spanId']}-01"


@pytest.mark.parametrize("hangs", [True, False], ids=["hangs", "refuses"])
def test_a_collector_that_takes_nothing_is_not_waited_for(hangs):
    with Collector(hangs=hangs) as collector:
        env = collector.environment() if hangs else clean_environment(OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{free_port()}")

        def a_run():
            ended = run([DDPRUN, "true"], env=env)
            assert ended.returncode == 0
            (line,) = ended.stderr.splitlines()
            assert line.startswith("ddprun: traces: 127.0.0.1:") and line.endswith("later failures are not shown")

        assert takes_less(4, a_run), "the last request is waited for a second, and any other for ten"


@pytest.mark.parametrize("off", [{"OTEL_SDK_DISABLED": "true"}, {"OTEL_TRACES_EXPORTER": "none"}], ids=lambda off: next(iter(off)))
def test_where_they_are_off_the_outer_trace_is_the_workers(off):
    with Collector() as collector:
        ended = run([DDPRUN, "sh", "-c", "echo $TRACEPARENT"], env=collector.environment(**off, **OUTER))
    assert (ended.returncode, ended.stdout.split()[-1], ended.stderr) == (0, OUTER["TRACEPARENT"], "")
    assert collector.got == []


def test_another_protocol_is_named_once():
    with Collector() as collector:
        ended = run([DDPRUN, "true"], env=collector.environment(OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf"))
    (line,) = ended.stderr.splitlines()
    assert ended.returncode == 0 and "traces are sent as http/json" in line and "http/protobuf" in line
    assert [span["name"] for span in collector.spans()] == ["round", "run"]
