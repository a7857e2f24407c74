# SPDX-License-Identifier: Apache-2.0
"""--numa-binding against torch's own code: the same machines, written as folders that look like /sys.

ddprun sees them through hwloc (HWLOC_FSROOT); torch.numa.binding through `open` and `os.listdir` that look there, as
its own tests do it.
"""

import builtins
import collections
import contextlib
import dataclasses
import inspect
import io
import os
import random
import subprocess
import types
from unittest import mock

import pytest
import torch
import torch.numa.binding as torch_numa
from conftest import BUILD, DDPRUN, SHELL_DDPRUN, run

PRINT_BINDING = BUILD / "tests" / "print_binding"
MODES = ("node", "socket", "exclusive", "core-complex")

Cpu = collections.namedtuple("Cpu", "id core l3 node package")


@dataclasses.dataclass
class Machine:
    """`gpus`: the NUMA node of each, as /sys says it; -1 where the firmware does not."""

    cpus: list
    gpus: list

    def sharing(self, cpu, *fields):
        return {other.id for other in self.cpus if all(getattr(other, f) == getattr(cpu, f) for f in fields)}


def regular(packages=1, nodes=1, caches=1, cores=1, threads=1, gpus=(), neighbours=False):
    """`nodes` of each package, `caches` of each node and so on. Threads of a core are numbered as Intel's machines do
    (all first threads, then all second ones), or as neighbours."""
    cpus = []
    core_count = packages * nodes * caches * cores
    for core in range(core_count):
        l3 = core // cores
        node = l3 // caches
        for thread in range(threads):
            number = core * threads + thread if neighbours else thread * core_count + core
            cpus.append(Cpu(number, core, l3, node, node // nodes))
    return Machine(sorted(cpus), list(gpus))


def mask(numbers):
    """As the kernel writes bitmaps: words of 32 bits with commas between."""
    value = sum(1 << number for number in numbers)
    words = []
    while value or not words:
        words.append(f"{value & 0xFFFFFFFF:08x}")
        value >>= 32
    return ",".join(reversed(words))


def write(root, path, text):
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{text}\n")


def ranges(numbers):
    return torch_numa._get_ranges_str_from_ints(numbers)


def write_machine(root, machine):
    everyone = [cpu.id for cpu in machine.cpus]
    system = "sys/devices/system"
    for name in ("online", "possible", "present"):
        write(root, f"{system}/cpu/{name}", ranges(everyone))
    lines = []
    for cpu in machine.cpus:
        lines += [f"processor\t: {cpu.id}", f"physical id\t: {cpu.package}", f"core id\t: {cpu.core}", ""]
        folder = f"{system}/cpu/cpu{cpu.id}"
        siblings = machine.sharing(cpu, "core")
        package = machine.sharing(cpu, "package")
        for name, numbers in (("thread_siblings", siblings), ("core_cpus", siblings)):
            write(root, f"{folder}/topology/{name}", mask(numbers))
            write(root, f"{folder}/topology/{name}_list", ranges(numbers))
        for name in ("core_siblings", "package_cpus"):
            write(root, f"{folder}/topology/{name}", mask(package))
        write(root, f"{folder}/topology/core_id", cpu.core)
        write(root, f"{folder}/topology/physical_package_id", cpu.package)
        caches = [(1, "Data", siblings), (1, "Instruction", siblings), (2, "Unified", siblings)]
        if cpu.l3 is not None:
            caches.append((3, "Unified", machine.sharing(cpu, "l3")))
        for index, (level, kind, numbers) in enumerate(caches):
            cache = f"{folder}/cache/index{index}"
            write(root, f"{cache}/level", level)
            write(root, f"{cache}/type", kind)
            write(root, f"{cache}/size", "1024K")
            write(root, f"{cache}/id", min(numbers))
            write(root, f"{cache}/shared_cpu_map", mask(numbers))
            write(root, f"{cache}/shared_cpu_list", ranges(numbers))
    write(root, "proc/cpuinfo", "\n".join(lines))
    nodes = sorted({cpu.node for cpu in machine.cpus})
    for name in ("online", "possible"):
        write(root, f"{system}/node/{name}", ranges(nodes))
    for node in nodes:
        numbers = [cpu.id for cpu in machine.cpus if cpu.node == node]
        write(root, f"{system}/node/node{node}/cpumap", mask(numbers))
        write(root, f"{system}/node/node{node}/cpulist", ranges(numbers))
        write(root, f"{system}/node/node{node}/meminfo", f"Node {node} MemTotal: 1048576 kB")
    for index, node in enumerate(machine.gpus):
        write(root, f"sys/bus/pci/devices/0000:{index:02x}:00.0/numa_node", node)


# Until torch 2.13 of CUDA alone, and called so.
DEVICE_INDEX = next(iter(inspect.signature(torch_numa._get_logical_cpus_to_bind_to).parameters))


@contextlib.contextmanager
def torch_sees(root, machine, allowed):
    real_open, real_listdir = builtins.open, os.listdir
    texts = {}  # torch reads the same files again for each worker

    def read(path, *rest, **named):
        if not str(path).startswith("/sys"):
            return real_open(path, *rest, **named)
        if path not in texts:
            with real_open(f"{root}{path}") as file:
                texts[path] = file.read()
        return io.StringIO(texts[path])

    def listdir(path="."):
        return real_listdir(f"{root}{path}" if str(path).startswith("/sys") else path)

    def properties(index):
        return types.SimpleNamespace(pci_domain_id=0, pci_bus_id=index, pci_device_id=0)

    with (
        mock.patch("builtins.open", read),
        mock.patch("os.listdir", listdir),
        mock.patch("os.sched_getaffinity", lambda pid: set(allowed)),
        mock.patch("torch.cuda.device_count", lambda: len(machine.gpus)),
        mock.patch("torch.accelerator.is_available", lambda: True),
        mock.patch("torch.accelerator.device_count", lambda: len(machine.gpus)),
        mock.patch("torch.accelerator.current_accelerator", lambda: torch.device("cuda")),
        mock.patch("torch.cuda.get_device_properties", properties),
    ):
        yield


def torch_binds(root, machine, allowed, mode, workers):
    """The CPUs of each worker, or None where torch refuses."""
    options = torch_numa.NumaOptions(affinity_mode=torch_numa.AffinityMode(mode))
    with torch_sees(root, machine, allowed):
        try:
            bound = [
                torch_numa._get_logical_cpus_to_bind_to(**{DEVICE_INDEX: rank}, numa_options=options)
                for rank in range(workers)
            ]
        except (RuntimeError, ValueError, ZeroDivisionError):
            return None
    return bound if all(bound) else None


def ddprun_binds(root, machine, allowed, mode, workers):
    """(CPUs of each worker, their memory nodes), or (None, a sentence)."""
    seats = ",".join(str(max(node, 0)) for node in machine.gpus)
    done = subprocess.run(
        [PRINT_BINDING, mode, str(workers), ranges(allowed), seats],
        env={**os.environ, "HWLOC_FSROOT": str(root)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    if done.returncode != 0:
        assert done.stdout.startswith("error: "), done
        return None, done.stdout
    rows = [line.split(" ") for line in done.stdout.splitlines()]
    parse = torch_numa._get_set_of_int_from_ranges_str
    return [parse(cpus) for cpus, _ in rows], [parse(nodes) for _, nodes in rows]


def compare(root, machine, allowed=None, workers=None):
    allowed = sorted(allowed or (cpu.id for cpu in machine.cpus))
    workers = workers or len(machine.gpus)
    write_machine(root, machine)
    outcomes = {}
    for mode in MODES:
        theirs = torch_binds(root, machine, allowed, mode, workers)
        ours, nodes = ddprun_binds(root, machine, allowed, mode, workers)
        assert ours == theirs, (mode, machine, allowed, nodes)
        outcomes[mode] = ours
        if ours is not None:
            node_of = {cpu.id: cpu.node for cpu in machine.cpus}
            assert nodes == [{node_of[number] for number in cpus} for cpus in ours]
    return outcomes


MACHINES = {
    "one node": regular(cores=8, gpus=[-1, -1]),
    "two sockets of four nodes with threads": regular(2, 4, 1, 4, 2, gpus=[0, 1, 2, 3, 4, 5, 6, 7]),
    "two nodes a socket": regular(2, 2, 1, 6, 2, gpus=[0, 0, 1, 3, 3, 2, 1, 0]),
    "core complexes": regular(2, 1, 4, 8, 2, gpus=[0, 0, 0, 0, 1, 1, 1, 1]),
    "threads as neighbours": regular(2, 1, 2, 4, 2, gpus=[1, 0, 1], neighbours=True),
    "more GPUs than complexes": regular(1, 1, 2, 4, 1, gpus=[0, 0, 0, 0, 0]),
    "an odd number of cores": regular(1, 1, 1, 7, 2, gpus=[0, 0, 0]),
    "more than 64 CPUs": regular(2, 2, 4, 6, 2, gpus=[3, 2, 1, 0]),
}


@pytest.mark.parametrize("name", MACHINES)
def test_same_cpus_as_torch(tmp_path, name):
    outcomes = compare(tmp_path, MACHINES[name])
    assert all(outcomes[mode] for mode in MODES), outcomes


def test_fewer_workers_than_gpus(tmp_path):
    compare(tmp_path, MACHINES["core complexes"], workers=3)


def test_fewer_cores_than_gpus_is_refused_by_both(tmp_path):
    machine = regular(2, cores=2, gpus=[0, 0, 0, 1])
    assert compare(tmp_path, machine)["exclusive"] is None
    allowed = [cpu.id for cpu in machine.cpus]
    _, sentence = ddprun_binds(tmp_path, machine, allowed, "exclusive", 4)
    assert "NUMA node 0 has 2 that may be used here for 3 workers or GPUs" in sentence


def test_cpus_that_a_container_leaves(tmp_path):
    outcomes = compare(tmp_path, MACHINES["core complexes"], allowed=[3, 5, 6, 7, 8, 40, 69, 70, 100, 127])
    assert outcomes["node"][0] == {3, 5, 6, 7, 8, 69, 70}


def test_a_gpu_at_a_node_that_a_container_leaves_out_is_refused_by_both(tmp_path):
    machine = MACHINES["two sockets of four nodes with threads"]
    outcomes = compare(tmp_path, machine, allowed=range(4))
    assert not any(outcomes.values())


def test_nodes_and_sockets_of_unequal_size(tmp_path):
    cpus = [Cpu(i, i, 0 if i < 2 else 1 if i < 8 else 2, 0 if i < 8 else 1, 0) for i in range(9)]
    cpus += [Cpu(9 + i, 9 + i, 3, 2, 1) for i in range(3)]
    assert all(compare(tmp_path, Machine(cpus, [0, 0, 1, 2])).values())


def test_a_machine_without_a_shared_cache(tmp_path):
    cpus = [Cpu(i, i, None, i // 4, i // 4) for i in range(8)]
    outcomes = compare(tmp_path, Machine(cpus, [0, 0, 1]))
    assert outcomes["core-complex"] == [{0}, {1}, {4}]


@pytest.mark.parametrize("seed", range(6))
def test_random_machines(tmp_path, seed):
    rng = random.Random(seed)
    for attempt in range(3):
        shape = [rng.randint(1, 2), rng.randint(1, 3), rng.randint(1, 3), rng.randint(1, 5), rng.randint(1, 2)]
        nodes = shape[0] * shape[1]
        gpus = [rng.randrange(nodes) for _ in range(rng.randint(1, 6))]
        machine = regular(*shape, gpus=gpus, neighbours=rng.random() < 0.5)
        everyone = [cpu.id for cpu in machine.cpus]
        allowed = everyone
        # Torch's socket mode fails where a container leaves a node without any CPU, also if no GPU is there; ours does
        # not, so every node keeps one here.
        if rng.random() < 0.5:
            kept = {rng.choice([cpu.id for cpu in machine.cpus if cpu.node == node]) for node in range(nodes)}
            allowed = sorted(kept | set(rng.sample(everyone, rng.randint(0, len(everyone)))))
        compare(tmp_path / str(attempt), machine, allowed, rng.randint(1, len(gpus)))


def test_a_node_without_cpus_elsewhere_does_not_hinder(tmp_path):
    """Where torch fails for no reason."""
    machine = regular(2, 2, cores=2, gpus=[0])
    write_machine(tmp_path, machine)
    assert torch_binds(tmp_path, machine, [0, 1, 2, 3], "socket", 1) is None
    assert ddprun_binds(tmp_path, machine, [0, 1, 2, 3], "socket", 1)[0] == [{0, 1, 2, 3}]


def test_hwloc_is_wanted_by_this_flag_alone():
    """Its file is covered by an empty one, in a mount namespace of the test's own."""
    if os.geteuid() != 0:
        pytest.skip("a mount namespace needs root")
    listed = run(["ldconfig", "-p"]).stdout
    library = next(line.split("=> ")[1] for line in listed.splitlines() if "libhwloc.so.15 " in line)
    hide = f"mount --bind /dev/null {os.path.realpath(library)} && exec "
    without = run(["unshare", "--mount", "sh", "-c", f"{hide}{SHELL_DDPRUN} echo ran"])
    assert (without.returncode, without.stdout) == (0, "[0] ran\n"), without
    bound = run(["unshare", "--mount", "sh", "-c", f"{hide}{SHELL_DDPRUN} --numa-binding node echo ran"])
    assert (bound.returncode, bound.stdout) == (1, ""), bound
    assert bound.stderr.startswith("ddprun: --numa-binding needs hwloc") and "libhwloc15" in bound.stderr
    assert bound.stderr.count("\n") == 1
