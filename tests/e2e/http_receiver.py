# SPDX-License-Identifier: Apache-2.0
"""A server of HTTP on loopback that keeps what it is sent, for what ddprun tells other programs."""

import http.server
import threading
import time


class Receiver:
    """`got`: (monotonic seconds, path, headers, body) of each POST. `hangs`: it answers none before its end."""

    def __init__(self, status=200, answer=b"ok", context=None, hangs=False):
        self.got = []
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.got.append((time.monotonic(), self.path, self.headers, body))
                if hangs:
                    receiver.hang.wait(60)
                self.send_response(status)
                if status != 204:
                    self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer if status != 204 else b"")

            def log_message(self, *words):
                pass

        self.hang = threading.Event()
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        if context is not None:
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.url = f"{'https' if context else 'http'}://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *why):
        self.hang.set()
        self.server.shutdown()
        self.server.server_close()
