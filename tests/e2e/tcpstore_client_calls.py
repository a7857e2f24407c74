# SPDX-License-Identifier: Apache-2.0
"""Calls every public operation of this torch's own TCPStore and prints what each gives, as JSON:

    tcpstore_client_calls.py own          at a server of its own
    tcpstore_client_calls.py HOST PORT    at that one

Twice: by the store itself and by a PrefixStore over it. What is called is in the rows of CALLS; test_tcpstore_clients.py compares."""

import datetime
import json
import sys
import threading

import torch
import torch.distributed as dist

PATIENCE = datetime.timedelta(seconds=60)
BRIEFLY = datetime.timedelta(milliseconds=300)


def text(value):
    return value.decode("latin-1") if isinstance(value, bytes) else value


def outcome(call):
    """Of an error its class: the sentence is torch's own, and names addresses."""
    try:
        value = call()
    except Exception as error:
        return type(error).__name__
    return [text(one) for one in value] if isinstance(value, list) else text(value)


def beside(first, second):
    """Both at the same time, each with a connection of its own."""
    results = [None, None]

    def run(index, call):
        results[index] = outcome(call)

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate((first, second))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


# In this order; by the name of the method that each is of.
def calls(store, make):
    other = store.clone()
    rows = {
        "has_extended_api": [store.has_extended_api],
        "clone": [lambda: type(other).__name__, lambda: other.has_extended_api()],
        "set": [lambda: store.set("k", "v"), lambda: store.set("empty", ""), lambda: store.set("odd \x01ü", "x" * 100_000)],
        "get": [
            lambda: store.get("k"), lambda: other.get("empty"), lambda: len(store.get("odd \x01ü")), lambda: make(BRIEFLY).get("absent")
        ],
        "check": [lambda: store.check(["k"]), lambda: store.check(["k", "absent"]), lambda: store.check([])],
        "add": [lambda: store.add("n", 5), lambda: other.add("n", -7), lambda: store.add("n", 2**40), lambda: store.get("n")],
        "compare_set": [
            lambda: store.compare_set("c", "wrong", "new"), lambda: store.check(["c"]), lambda: store.compare_set("c", "", "first"),
            lambda: store.compare_set("c", "first", "second"), lambda: store.compare_set("c", "first", "third"), lambda: store.get("c"),
        ],
        "append": [lambda: store.append("a", "po"), lambda: store.append("a", "tato"), lambda: store.get("a")],
        "delete_key": [lambda: store.delete_key("a"), lambda: store.delete_key("a"), lambda: store.check(["a"])],
        "multi_set": [lambda: store.multi_set(["m1", "m2"], ["1", ""])],
        "multi_get": [lambda: store.multi_get(["m1", "m2", "k"]), lambda: store.multi_get([])],
        "num_keys": [store.num_keys, lambda: other.num_keys()],
        "list_keys": [lambda: sorted(key for key in store.list_keys() if "init/" not in key)],
        "wait": [
            lambda: store.wait(["k", "m1"]), lambda: store.wait(["k"], PATIENCE), lambda: store.wait(["absent"], BRIEFLY),
            lambda: beside(lambda: other.wait(["late"], PATIENCE), lambda: store.set("late", "x")), lambda: store.get("k"),
        ],
        "queue_push": [lambda: store.queue_push("q", "1"), lambda: store.queue_push("q", ""), lambda: store.queue_push("q", "3")],
        "queue_len": [lambda: store.queue_len("q"), lambda: store.queue_len("no queue")],
        "queue_pop": [
            lambda: store.queue_pop("q"), lambda: store.queue_pop("q", True), lambda: store.queue_pop("q", False), lambda: store.queue_len("q"),
            lambda: store.queue_pop("q", False), lambda: make(BRIEFLY).queue_pop("q"),
            lambda: beside(lambda: other.queue_pop("later"), lambda: store.queue_push("later", "x")),
        ],
        "barrier": [
            lambda: store.barrier("b", 1), lambda: beside(lambda: other.barrier("both", 2), lambda: store.barrier("both", 2, PATIENCE)),
            lambda: store.barrier("alone", 2, BRIEFLY), lambda: store.get("alone"), lambda: other.barrier("alone", 2),
        ],
        "timeout": [lambda: store.timeout == PATIENCE],
        "set_timeout": [
            lambda: store.set_timeout(BRIEFLY),
            # A PrefixStore's is not that of the client below it, by which a get waits.
            *([lambda: store.get("absent")] if isinstance(store, dist.TCPStore) else []),
            lambda: store.set_timeout(PATIENCE),
        ],
    }
    # Without what this torch has not yet.
    return {name: [outcome(call) for call in row] for name, row in rows.items() if hasattr(store, name)}


def public(store):
    return sorted(name for name in dir(store) if not name.startswith("_"))


def main(where, port=None):
    master = dist.TCPStore("127.0.0.1", 0, None, True, PATIENCE, wait_for_workers=False) if where == "own" else None
    host, port = ("127.0.0.1", master.port) if master else (where, int(port))

    def connect(timeout=PATIENCE, world_size=None, use_libuv=True):
        client = dist.TCPStore(host, port, world_size, False, PATIENCE, wait_for_workers=False, use_libuv=use_libuv)
        client.set_timeout(timeout)  # of operations, and not of the handshake
        return client

    store = connect()
    prefixed = dist.PrefixStore("inner", dist.PrefixStore("outer", connect()))
    print(json.dumps({
        "torch": torch.__version__.partition("+")[0],
        "public": public(store),
        "store": calls(store, connect),
        "prefixed": calls(prefixed, lambda timeout: dist.PrefixStore("inner", dist.PrefixStore("outer", connect(timeout)))),
        # A client that knows how many there are counts itself; the other is of the server before libuv's.
        "handshakes": [outcome(lambda: connect(world_size=3).get("k")), outcome(lambda: connect(use_libuv=False).get("k"))],
        "keys": store.num_keys(),
    }))


if __name__ == "__main__":
    main(*sys.argv[1:])
