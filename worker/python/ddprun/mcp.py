# SPDX-License-Identifier: Apache-2.0
"""A server of the Model Context Protocol (2025-06-18, over stdio) for assistants that look after runs:

    python -m ddprun.mcp [--control] [FLAGS OF ddpctl ...]

Each tool is one command of ddpctl, whose flags come after, as in `python -m ddprun.mcp --rdzv-endpoint head:29400`; without them
it finds this user's detached runs. Only --control adds the tools that stop a run or drain a node.
"""

import json
import os
import subprocess
import sys

from .programs import find_program

PROTOCOLS = ("2025-06-18", "2025-03-26", "2024-11-05")
CALL_TIMEOUT = 60
TEXT_MAX = 60_000  # characters of one answer: the end of a longer one
METHOD_NOT_FOUND, INVALID_PARAMS, PARSE_ERROR = -32601, -32602, -32700

RUN = {"type": "string", "description": "Name or id of the run; the newest one if left out."}
RANK = {"type": "integer", "minimum": 0, "description": "Only this rank; all if left out."}
LINES = {"type": "integer", "minimum": 1, "maximum": 500, "description": "The last lines of each (20)."}
NODE = {"type": "string", "description": "Node rank, host or node id."}


def _logs(given):
    words = ["logs", "-n", str(given.get("lines", 20))]
    return words + (["--rank", str(given["rank"])] if "rank" in given else [])


def _stacks(given):
    return ["stacks", *([str(given["rank"])] if "rank" in given else [])]


# Name: (description, properties, whether it takes RUN as its argument, the command). Those of CONTROL change the run.
TOOLS = {
    "list_runs": ("Lists this user's detached runs, live and past, and how each ended.", {}, False, lambda given: ["runs", "--json"]),
    "why": ("Says what happened to a run or what it waits for: first cause, what preceded it, what to do.", {"run": RUN}, True,
            lambda given: ["why", "--json"]),
    "run_status": ("Nodes, ranks, progress, goodput and the last failure of a live run.", {"run": RUN}, False,
                   lambda given: ["status", "--json", *(["--rdzv-id", given["run"]] if "run" in given else [])]),
    "run_events": ("Lists what has happened in a run, one JSON object a line.", {"run": RUN, "lines": LINES}, True,
                   lambda given: ["events", "--json", "-n", str(given.get("lines", 20))]),
    "run_logs": ("The last lines of output of a live run's workers.", {"run": RUN, "rank": RANK, "lines": LINES}, True, _logs),
    "rank_stacks": ("What the workers of the live run do now: their Python and native stacks.", {"rank": RANK}, False, _stacks),
}
CONTROL = {
    "stop_run": ("Ends a run on all its nodes. It cannot be undone.", {"run": RUN}, True, lambda given: ["stop"]),
    "drain_node": ("Lets a node leave its run.", {"node": NODE}, False, lambda given: ["drain", given["node"]]),
}
REQUIRED = {"drain_node": ["node"]}


class Refused(Exception):
    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


def _listed(tools):
    for name, (description, properties, _, _) in tools.items():
        schema = {"type": "object", "properties": properties, "required": REQUIRED.get(name, []), "additionalProperties": False}
        yield {"name": name, "description": description, "inputSchema": schema,
               "annotations": {"readOnlyHint": name not in CONTROL, "destructiveHint": name in CONTROL}}


def _checked(name, tools, given):
    if name not in tools:
        raise Refused(INVALID_PARAMS, f"no tool {name!r}; there are {', '.join(tools)}")
    properties = tools[name][1]
    for key, value in given.items():
        kind = properties.get(key, {}).get("type")
        fits = isinstance(value, str) and not value.startswith("-") if kind == "string" else type(value) is int and value >= 0
        if kind is None or not fits:
            raise Refused(INVALID_PARAMS, f"{name} does not take {key}={value!r}")
    for key in REQUIRED.get(name, []):
        if key not in given:
            raise Refused(INVALID_PARAMS, f"{name} needs {key}")


def _call(name, tools, given, program, flags):
    _checked(name, tools, given)
    _, _, takes_run, words = tools[name]
    command = [program, *words(given), *([given["run"]] if takes_run and "run" in given else [])]
    # A list of runs asks no service.
    command += [] if name == "list_runs" else flags
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=CALL_TIMEOUT, check=False)
        text = (done.stdout + done.stderr).decode(errors="replace")
        failed = done.returncode != 0
    except subprocess.TimeoutExpired:
        text, failed = f"ddpctl did not answer within {CALL_TIMEOUT} s", True
    except OSError as error:
        text, failed = f"cannot execute {program}: {error.strerror}", True
    return {"content": [{"type": "text", "text": text[-TEXT_MAX:]}], "isError": failed}


def _answer(method, params, tools, program, flags):
    if method == "initialize":
        wanted = params.get("protocolVersion")
        return {"protocolVersion": wanted if wanted in PROTOCOLS else PROTOCOLS[0], "capabilities": {"tools": {}},
                "serverInfo": {"name": "ddprun", "version": "1"}}
    if method == "ping":
        return {}
    if method == "tools/list":
        return {"tools": list(_listed(tools))}
    if method == "tools/call":
        return _call(params.get("name"), tools, params.get("arguments") or {}, program, flags)
    raise Refused(METHOD_NOT_FOUND, f"no method {method!r}")


def _reply(line, *more):
    """The answer to a line; None: it wants none."""
    try:
        request = json.loads(line)
        method, params = request["method"], request.get("params") or {}
        if not isinstance(method, str) or not isinstance(params, dict):
            raise TypeError(method)
    except (ValueError, KeyError, TypeError, AttributeError):
        return {"jsonrpc": "2.0", "id": None, "error": {"code": PARSE_ERROR, "message": "this line is no request of JSON-RPC"}}
    if "id" not in request:
        return None
    try:
        return {"jsonrpc": "2.0", "id": request["id"], "result": _answer(method, params, *more)}
    except Refused as refused:
        return {"jsonrpc": "2.0", "id": request["id"], "error": {"code": refused.code, "message": str(refused)}}


def main():
    flags = sys.argv[1:]
    tools = TOOLS | (CONTROL if "--control" in flags else {})
    flags = [flag for flag in flags if flag != "--control"]
    if flags[:1] in (["-h"], ["--help"]):
        sys.stdout.write(__doc__)
        return 0
    program = find_program("ddpctl")
    if program is None:
        sys.stderr.write("ddprun.mcp: the program ddpctl is neither beside this Python nor in PATH; install ddprun's wheel or package\n")
        return 2
    for line in sys.stdin.buffer:
        reply = _reply(line.decode(errors="replace"), tools, program, flags) if line.strip() else None
        if reply is None:
            continue
        try:
            sys.stdout.write(json.dumps(reply) + "\n")
            sys.stdout.flush()
        except BrokenPipeError:
            os._exit(0)  # the client is gone
    return 0


if __name__ == "__main__":
    sys.exit(main())
