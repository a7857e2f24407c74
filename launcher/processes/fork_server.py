# SPDX-License-Identifier: Apache-2.0
"""The fork server of `ddprun --preload`: a Python that has imported the modules and is forked for each worker.

Python imports this file as its `sitecustomize`, just before it runs the program, and has the command line of the
workers. In the server that import does not end: it waits for the requests of fork_server.cc. In a forked worker it
ends, and Python runs the program by itself: nothing of a cold start is imitated, and no frame of this file is below the
program's.
"""

import contextlib
import ctypes
import importlib
import os
import signal
import socket
import sys
import time

VARIABLE = "DDPRUN_FORK_SERVER"  # "check AGENT MODULES", then "serve AGENT MODULES"
PR_SET_PDEATHSIG, PR_SET_NAME, PR_SET_PTRACER = 1, 15, 0x59616D61
DESCRIPTORS_MAX = 6  # the channel to the agent, the request, stdin, stdout, stderr, the cgroup
GO_SECONDS = 10  # the agent answers at once
# torch.optim imports it when a program makes its first optimizer: 900 modules, 1.5 s.
OPTIMIZER_MODULE = "torch._dynamo"
THREAD_END_SECONDS = 1  # a joined thread is listed for a moment longer
libc = ctypes.CDLL(None, use_errno=True)


def execute_as_server(agent, modules):
    """Now Python is known to import this file. One that does not would run the program, as a worker without a rank."""
    words = sys.argv[1:]
    os.environ[VARIABLE] = f"serve {agent} {modules}"
    os.execv(sys.executable, sys.orig_argv[: -2 - len(words)] + words)  # without -c and its text


def hide():
    """Modules and workers find the path and the variables of a cold start."""
    folder = os.path.dirname(__file__)
    others = os.environ["PYTHONPATH"].partition(":")[2]
    del os.environ["PYTHONPATH"], os.environ[VARIABLE]
    if others:
        os.environ["PYTHONPATH"] = others
    sys.path.remove(folder)
    sys.path_importer_cache.pop(folder, None)
    del sys.modules["sitecustomize"]


def import_other_sitecustomize():
    """Python reports this error, or ignores that there is no such module, when the worker raises it."""
    try:
        importlib.import_module("sitecustomize")
    except Exception as error:
        return error
    return None


def program_folder():
    """What Python is going to put in front of sys.path."""
    program = sys.argv[0]
    if program in ("-m", "-c"):
        return os.getcwd() if program == "-m" else ""
    if os.path.isdir(program) or program.endswith(".pyz"):
        return program
    return os.path.dirname(os.path.realpath(program))


def import_modules(modules):
    folders = [] if getattr(sys.flags, "safe_path", False) else [program_folder()]
    sys.path[:0] = folders
    for module in modules.split(","):
        importlib.import_module(module)
    if "torch" in sys.modules:
        with contextlib.suppress(Exception):
            importlib.import_module(OPTIMIZER_MODULE)
    for folder in folders:
        sys.path.remove(folder)
    sys.stdout.flush()
    sys.stderr.flush()
    libc.fflush(None)  # or every worker would print it again


def check_forkable():
    child = os.fork()  # libraries such as OpenBLAS end their threads before a fork, and start them anew when needed
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    end = time.monotonic() + THREAD_END_SECONDS
    while (threads := len(os.listdir("/proc/self/task")) - 1) > 0:
        if time.monotonic() > end:
            sys.exit(f"its modules have started threads ({threads}), which a forked process would not have")
        time.sleep(0.001)
    for fd in os.listdir("/proc/self/fd"):
        path = os.path.realpath(f"/proc/self/fd/{fd}")
        if path.startswith("/dev/nvidia"):
            sys.exit(f"its modules have opened {path}, and a GPU cannot be used after a fork")


def wait_for_requests(listener):
    """Returns in each worker: the parent that is about to end, and the descriptors of the request."""
    while True:
        message, fds, _, _ = socket.recv_fds(listener, 1, DESCRIPTORS_MAX, socket.MSG_CMSG_CLOEXEC)
        if not message:
            os._exit(0)  # the agent has ended
        server = os.getpid()
        try:
            middle = os.fork()
            if middle == 0:
                middle = os.getpid()
                if os.fork() == 0:
                    return middle, fds
                os._exit(0)  # the agent inherits the worker
            os.waitpid(middle, 0)
        except OSError as error:
            os.write(fds[0], str(error).encode())
            if os.getpid() != server:
                os._exit(1)
        for fd in fds:
            os.close(fd)


def become_worker(agent, middle, name, request, stdin, out, err, cgroup=None):
    """What the kernel keeps of a process, in the order of RunChild() in spawn.cc; then what Python does."""
    while os.getppid() == middle:
        time.sleep(0.0002)
    libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    libc.prctl(PR_SET_PTRACER, ctypes.c_ulong(agent), 0, 0, 0)
    if os.getppid() != agent:
        raise ProcessLookupError("the agent has ended")
    os.setsid()
    libc.prctl(PR_SET_NAME, name, 0, 0, 0)
    os.dup2(stdin, 0)
    os.dup2(out, 1)
    os.dup2(err, 2)
    with open(request, "rb") as file:
        items = [(item[:1], item[1:]) for item in file.read().split(b"\0")]
    if cgroup is not None:
        with contextlib.suppress(OSError), open(f"/proc/self/fd/{cgroup}/cgroup.procs", "wb", 0) as file:
            file.write(b"0")
        os.close(cgroup)
    os.close(stdin)
    os.close(out)
    os.close(err)
    for kind, text in items:
        if kind == b"c":
            os.sched_setaffinity(0, [int(number) for number in text.split(b",")])
        elif kind == b"m":  # a preference: the kernel may refuse it, as in cpu_binding.cc
            number, policy, bits, *words = (ctypes.c_ulong(int(word)) for word in text.split(b","))
            libc.syscall(number, policy, (ctypes.c_ulong * len(words))(*(word.value for word in words)), bits)
    os.environ.clear()
    os.environb.update(text.split(b"=", 1) for kind, text in items if kind == b"e" and text.find(b"=") > 0)
    words = [os.fsdecode(text) for kind, text in items if kind == b"a"]
    count = len(sys.argv) - 1
    if count > 0:
        sys.argv[-count:] = sys.orig_argv[-count:] = words[-count:]
    if seed_numpy := getattr(sys.modules.get("numpy.random"), "seed", None):
        seed_numpy()  # Python's own random does that by itself
    if generator := getattr(sys.modules.get("torch"), "default_generator", None):
        generator.seed()
    importlib.invalidate_caches()


def watch_collectives():
    """What a cold start imports as its `sitecustomize`."""
    if folder := os.environ.get("DDPRUN_COLLECTIVE_WATCH"):
        with open(os.path.join(folder, "sitecustomize.py"), "rb") as file:
            exec(compile(file.read(), file.name, "exec"), {"__name__": "collective_watch"})


def serve(agent, modules):
    """Returns in each worker: the exception that Python handles as in a cold start."""
    listener = socket.socket(fileno=os.dup(1))
    os.dup2(2, 1)  # modules may print
    with open("/proc/self/comm", "rb") as file:
        name = file.read().strip()
    libc.prctl(PR_SET_NAME, b"fork-server", 0, 0, 0)
    hide()
    error = import_other_sitecustomize()
    import_modules(modules)
    check_forkable()
    listener.send(b"ready")
    middle, fds = wait_for_requests(listener)
    listener.close()
    channel = socket.socket(fileno=fds[0])
    channel.settimeout(GO_SECONDS)
    try:
        become_worker(agent, middle, name, *fds[1:])
        watch_collectives()
        channel.send(b"pid %d" % os.getpid())
        if not channel.recv(1):
            os._exit(1)  # the agent waits no longer: it has started another process
    except BaseException as failure:
        with contextlib.suppress(OSError):
            channel.send(f"{type(failure).__name__}: {failure}".encode())
        os._exit(1)
    channel.close()
    return error


def main():
    stage, agent, modules = os.environ[VARIABLE].split(" ")
    try:
        if stage == "check":
            execute_as_server(agent, modules)
        return serve(int(agent), modules)
    except SystemExit as end:  # of a module, or of check_forkable()
        print(end if isinstance(end.code, str) else f"SystemExit: {end}", file=sys.stderr)
    except BaseException:
        sys.__excepthook__(*sys.exc_info())
    os._exit(1)  # whatever happens: Python would go on and run the program


if (error := main()) is not None:
    raise error
