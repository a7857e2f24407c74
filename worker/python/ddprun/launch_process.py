# SPDX-License-Identifier: Apache-2.0
"""ddprun as a child of launch(): its output goes to sys.stdout and sys.stderr, and it ends when the caller is interrupted."""

import codecs
import contextlib
import os
import selectors
import signal
import subprocess
import sys
import threading

# Python's flags -X NAME, as the environment variables that do the same.
_X_VARIABLES = {
    "dev": "PYTHONDEVMODE", "faulthandler": "PYTHONFAULTHANDLER", "importtime": "PYTHONPROFILEIMPORTTIME",
    "int_max_str_digits": "PYTHONINTMAXSTRDIGITS", "no_debug_ranges": "PYTHONNODEBUGRANGES", "perf": "PYTHONPERFSUPPORT",
    "pycache_prefix": "PYTHONPYCACHEPREFIX", "tracemalloc": "PYTHONTRACEMALLOC", "utf8": "PYTHONUTF8",
    "warn_default_encoding": "PYTHONWARNDEFAULTENCODING",
}
_FLAG_VARIABLES = {
    "debug": "PYTHONDEBUG", "dont_write_bytecode": "PYTHONDONTWRITEBYTECODE", "no_user_site": "PYTHONNOUSERSITE",
    "optimize": "PYTHONOPTIMIZE", "safe_path": "PYTHONSAFEPATH", "verbose": "PYTHONVERBOSE",
}
_LOOK_SECONDS = 1  # whether ddprun has ended, if something else holds its output open
_READ_BYTES = 65536
_KEPT_BYTES = 4096  # of the end of stderr, for the sentence of a failure without a verdict


class LaunchProcess:
    def __init__(self, command):
        self._command = command
        self._process = None
        self._selector = selectors.DefaultSelector()
        self._errors = None  # what relays stderr

    def run(self):
        """Until it has ended. Returns its exit code; 128 + N: signal N ended it."""
        try:
            self._start()
            code = self._watch()
        except BaseException as error:
            if self._process is not None:
                # What Ctrl-C sends to a terminal's whole foreground group; ddprun takes two within 0.5 s for one.
                self._end(signal.SIGINT if isinstance(error, KeyboardInterrupt) else signal.SIGTERM)
            raise
        finally:
            self._close()
        return code if code >= 0 else 128 - code

    def last_line(self):
        """What ddprun itself has printed last, without its name; "" where that is not known."""
        lines = (self._errors.kept if self._errors else b"").decode(errors="replace").splitlines()
        own = [line for line in lines if line.startswith("ddprun: ")]
        return own[-1].partition(": ")[2] if own else ""

    def _start(self):
        streams = {"stdout": sys.stdout, "stderr": sys.stderr}
        relays = {name: _Relay(stream) for (name, stream), fd in zip(streams.items(), (1, 2)) if not _is_terminal(stream, fd)}
        for stream in streams.values():
            with contextlib.suppress(AttributeError, OSError, ValueError):  # None, closed
                stream.flush()
        pipes = {name: subprocess.PIPE for name in relays}
        self._process = subprocess.Popen(self._command, env=_environment(), bufsize=0, **pipes)
        self._errors = relays.get("stderr")
        for name, relay in relays.items():
            self._selector.register(getattr(self._process, name), selectors.EVENT_READ, relay)

    def _watch(self):
        """Relays on the caller's own thread: Jupyter shows what that prints below the cell that called."""
        while self._selector.get_map():
            ready = self._selector.select(_LOOK_SECONDS)
            for key, _ in ready:
                data = os.read(key.fd, _READ_BYTES)
                key.data.write(data)
                if not data:
                    self._selector.unregister(key.fileobj)
            if not ready and self._process.poll() is not None:
                break
        return self._process.wait()

    def _end(self, number):
        with self._interrupts_passed_on():
            try:
                self._process.send_signal(number)
                self._watch()
            except BaseException:
                self._process.kill()  # its keeper ends the workers
                self._process.wait()
                raise

    @contextlib.contextmanager
    def _interrupts_passed_on(self):
        """Another Ctrl-C is another signal to ddprun, which then kills the workers, and no exception that leaves them behind."""
        if threading.current_thread() is not threading.main_thread():
            yield  # no signal interrupts another one
            return
        before = signal.signal(signal.SIGINT, lambda *_: self._process.send_signal(signal.SIGINT))
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _close(self):
        self._selector.close()
        for pipe in (self._process.stdout, self._process.stderr) if self._process else ():
            if pipe is not None:
                pipe.close()


def _environment():
    """The workers load what this Python has pickled, in a Python that was started with the same flags (-O, -W, -X ...). These travel as
    variables, because on a worker's command line -I and -E would make it ignore what the launcher itself puts in PYTHONPATH."""
    environment = dict(os.environ)
    if sys.flags.ignore_environment:
        environment = {name: value for name, value in environment.items() if not name.startswith("PYTHON") or name.startswith("PYTHON_")}
    for flag, variable in _FLAG_VARIABLES.items():
        if number := int(getattr(sys.flags, flag, 0)):
            environment[variable] = str(number)
    for option, variable in _X_VARIABLES.items():
        if (value := sys._xoptions.get(option)) is not None:
            environment[variable] = "1" if value is True else value
    warnings = [option for option in sys.warnoptions if "," not in option]  # which that variable cannot have
    if sys.flags.dev_mode and "default" in warnings:
        warnings.remove("default")  # the development mode's own
    if warnings:
        environment["PYTHONWARNINGS"] = ",".join(warnings)
    environment["PYTHON_EXEC"] = sys.executable
    return environment


def _is_terminal(stream, fd):
    """Whether the stream is that descriptor, and a terminal: ddprun then writes there itself, and knows of the terminal."""
    try:
        return stream.fileno() == fd and os.isatty(fd)
    except (AttributeError, OSError, ValueError):  # None, or of a notebook; closed
        return False


class _Relay:
    """Writes bytes to a stream of Python's, whatever that is."""

    def __init__(self, stream):
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.kept = b""

    def write(self, data):
        """Empty: it is the end."""
        self.kept = (self.kept + data)[-_KEPT_BYTES:]
        if self._stream is None:
            return
        try:
            if self._stream in (sys.__stdout__, sys.__stderr__):
                self._stream.buffer.write(data)
            else:
                encoding = getattr(self._stream, "encoding", None) or "utf-8"
                text = self._decoder.decode(data, final=not data)
                self._stream.write(text.encode(encoding, "replace").decode(encoding))
            self._stream.flush()
        except (OSError, ValueError):
            self._stream = None  # a closed console ends no run
