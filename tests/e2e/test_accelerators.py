# SPDX-License-Identifier: Apache-2.0
"""Workers for AMD's, Intel's and Ascend's devices: machines written as folders in place of /dev and /sys."""

import os
import subprocess

import pytest
from conftest import DDPRUN, clean_environment, run

# The real /dev has what ddprun itself needs.
ENTER = """set -e
for name in null zero full random urandom tty; do : > "$0/dev/$name"; mount --bind "/dev/$name" "$0/dev/$name"; done
ln -sfn /proc/self/fd "$0/dev/fd"
mount --rbind "$0/dev" /dev
mount --bind "$0/sys" /sys
exec "$@"
"""
VARIABLES = ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")


def can_mount():
    return subprocess.run(["unshare", "--mount", "true"], stderr=subprocess.DEVNULL).returncode == 0


pytestmark = pytest.mark.skipif(os.geteuid() != 0 or not can_mount(), reason="needs root, for mounts of its own")


class FakeMachine:
    def __init__(self, root):
        self.root = root
        self.write("sys/class/empty")
        self.write("dev/empty")

    def write(self, path, text=""):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def link(self, path, target):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.symlink_to(target)

    def run(self, *words, **variables):
        env = clean_environment(**variables)
        for name in (*VARIABLES, "ASCEND_RT_VISIBLE_DEVICES", "ZE_FLAT_DEVICE_HIERARCHY"):
            if name not in variables:
                env.pop(name, None)
        return run(["unshare", "--mount", "sh", "-c", ENTER, self.root, DDPRUN, *words], env=env)

    def said(self, variable, *flags, **variables):
        """The variable's value in each rank, by rank."""
        done = self.run(*flags, "sh", "-c", f'echo "$RANK:${variable}"', **variables)
        assert done.returncode == 0, done.stderr
        return [line.split(":")[1] for line in sorted(done.stdout.splitlines())]


@pytest.fixture
def machine(tmp_path):
    return FakeMachine(tmp_path)


def add_rocm(machine, gpus):
    machine.write("dev/kfd")
    for number in range(1 + gpus):
        simds, minor = (0, 0) if number == 0 else (1216, 127 + number)
        machine.write(
            f"sys/class/kfd/kfd/topology/nodes/{number}/properties",
            f"simd_count {simds}\nlocation_id {number << 8}\ndomain 0\ndrm_render_minor {minor}\n",
        )
        if minor:
            machine.write(f"dev/dri/renderD{minor}")


def add_xpu(machine, minor, address):
    machine.write(f"dev/dri/renderD{minor}")
    machine.write(f"sys/bus/pci/devices/{address}/numa_node", "0\n")
    machine.link(f"sys/bus/pci/devices/{address}/driver", "../../drivers/xe")
    machine.link(f"sys/class/drm/renderD{minor}/device", f"../../../bus/pci/devices/{address}")


def test_amd_gpus_are_gpus(machine):
    add_rocm(machine, 4)
    assert machine.said("HIP_VISIBLE_DEVICES", "--nproc-per-node", "gpu") == [""] * 4
    own = ("--nproc-per-node", "auto", "--gpus-per-worker", "2")
    assert machine.said("HIP_VISIBLE_DEVICES", *own) == ["0,1", "2,3"]
    assert machine.said("HIP_VISIBLE_DEVICES", *own, HIP_VISIBLE_DEVICES="3,1") == ["3,1"]
    assert machine.said("HIP_VISIBLE_DEVICES", *own, ROCR_VISIBLE_DEVICES="2,3") == ["0,1"]
    assert machine.said("ROCR_VISIBLE_DEVICES", *own, ROCR_VISIBLE_DEVICES="2,3") == ["2,3"]


def test_intel_gpus(machine):
    add_xpu(machine, 128, "0000:29:00.0")
    add_xpu(machine, 129, "0000:3a:00.0")
    flags = ("--nproc-per-node", "xpu", "--virtual-local-rank")
    assert machine.said("ZE_AFFINITY_MASK", *flags) == ["0", "1"]
    assert machine.said("LOCAL_RANK", *flags) == ["0", "0"]
    assert machine.said("ZE_AFFINITY_MASK", "--nproc-per-node", "auto", "--gpus", "1") == ["1"]


def test_tiles_of_intel_gpus(machine):
    add_xpu(machine, 128, "0000:29:00.0")
    for tile in (0, 1):
        machine.write(f"sys/bus/pci/devices/0000:29:00.0/tile{tile}/gt0/id")
    flags = ("--nproc-per-node", "xpu")
    assert machine.said("RANK", *flags) == ["0", "1"]
    assert machine.said("RANK", *flags, ZE_FLAT_DEVICE_HIERARCHY="COMPOSITE") == ["0"]
    assert machine.said("ZE_AFFINITY_MASK", *flags, ZE_AFFINITY_MASK="1") == ["1"]


def test_ascend_npus(machine):
    machine.write("dev/davinci_manager")
    for number in range(3):
        machine.write(f"dev/davinci{number}")
    flags = ("--nproc-per-node", "npu", "--gpus-per-worker", "1")
    assert machine.said("ASCEND_RT_VISIBLE_DEVICES", *flags) == ["0", "1", "2"]
    assert machine.said("ASCEND_RT_VISIBLE_DEVICES", *flags, ASCEND_RT_VISIBLE_DEVICES="0,2") == ["0", "2"]


@pytest.mark.parametrize(
    "kind, words", [("gpu", "no NVIDIA or AMD GPU"), ("xpu", "no Intel GPU"), ("npu", "no Ascend NPU")]
)
def test_a_machine_without_them_is_one_sentence(machine, kind, words):
    done = machine.run("--nproc-per-node", kind, "true")
    assert done.returncode == 1
    assert done.stderr.startswith(f"ddprun: --nproc-per-node {kind}, but {words} is visible here (")
    assert done.stderr.endswith("); give a number, or cpu\n")


def test_a_gpu_of_the_processor_does_not_make_auto_one_worker(machine):
    add_xpu(machine, 128, "0000:00:02.0")
    done = machine.run("--nproc-per-node", "auto", "--dry-run", "true")
    assert f"{len(os.sched_getaffinity(0))} here" in done.stdout, done.stdout + done.stderr
    assert machine.said("RANK", "--nproc-per-node", "xpu") == ["0"]
