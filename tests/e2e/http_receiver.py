# SPDX-License-Identifier: Apache-2.0
"""A server of HTTP on loopback that keeps what it is sent, for what ddprun tells other programs; and a proxy before it."""

import base64
import http.server
import socket
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


class Proxy:
    """One that leads every CONNECT to a port of this machine. `asked`: their first lines. `user`: NAME:PASSWORD that it wants."""

    def __init__(self, port, user):
        self.asked = []
        self.port = port
        self.wanted = f"proxy-authorization: basic {base64.b64encode(user.encode()).decode()}".lower()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.place = f"127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *why):
        self.listener.close()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            if not (byte := client.recv(1)):
                return
            head += byte
        first, *headers = head.decode().split("\r\n")
        if self.wanted not in (one.lower() for one in headers):
            client.sendall(b"HTTP/1.0 407 Proxy Authentication Required\r\n\r\n")
            return client.close()
        self.asked.append(first.rpartition(" ")[0])
        server = socket.create_connection(("127.0.0.1", self.port))
        client.sendall(b"HTTP/1.0 200 Connection established\r\n\r\n")
        for source, target in ((client, server), (server, client)):
            threading.Thread(target=self._pass_on, args=(source, target), daemon=True).start()

    @staticmethod
    def _pass_on(source, target):
        try:
            while data := source.recv(1 << 16):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass
