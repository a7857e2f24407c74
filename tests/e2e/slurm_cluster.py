# SPDX-License-Identifier: Apache-2.0
"""A real Slurm cluster of two nodes on this machine, with a folder, keys and ports of the test's own.

Slurm is the installed one, or that of Debian's packages unpacked into the cache (deploy/packages.txt, [test-unpacked]),
whose programs have to be told where their libraries and each other are.
"""

import os
import pathlib
import shutil
import socket
import subprocess
import time

import pytest
from conftest import free_port

SBIN = os.environ["PATH"] + ":/usr/sbin:/sbin"
PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "salloc", "sbatch", "scancel", "scontrol", "sinfo", "squeue")
# The packages' own names have a suffix; an installation has links without it.
DAEMONS = {name: shutil.which(name, path=SBIN) or shutil.which(f"{name}-wlm", path=SBIN) for name in PROGRAMS}
UNPACKED = next((pathlib.Path(path).parents[2] for path in [DAEMONS["slurmctld"]] if path and path.endswith("-wlm")), None)


def libraries():
    """Where the unpacked programs find theirs; empty for installed ones."""
    if UNPACKED is None:
        return {}
    folders = [*UNPACKED.glob("usr/lib/*/slurm-wlm"), *UNPACKED.glob("usr/lib/*-linux-*"), *UNPACKED.glob("lib/*-linux-*")]
    return {"LD_LIBRARY_PATH": os.pathsep.join(map(str, folders))}



# Jobs of several components are begun by the backfill scheduler alone.
# A job that is queued again begins when what its first attempt was allowed to do is over: after cred_expire, else minutes.
CONF = """
ClusterName=test
SlurmctldHost={host}({address})
SlurmctldPort={controller_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock,cred_expire=5
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SwitchType=switch/none
SchedulerParameters=bf_interval=1
MpiDefault=none
ReturnToService=2
SlurmdTimeout=300
KillWait=2
NodeName=n1 NodeHostname={host} NodeAddr={address} Port={first_port} CPUs={cpus} State=UNKNOWN
NodeName=n2 NodeHostname={host} NodeAddr={address} Port={second_port} CPUs={cpus} State=UNKNOWN
PartitionName=all Nodes=n1,n2 Default=YES State=UP OverSubscribe=YES
"""


class SlurmCluster:
    def __init__(self, folder):
        self.folder = folder
        self.daemons = []
        key = folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        conf = CONF.format(
            folder=folder,
            host=socket.gethostname().split(".")[0],
            address="127.0.0.1",
            controller_port=free_port(),
            first_port=free_port(),
            second_port=free_port(),
            cpus=os.cpu_count(),
        )
        if UNPACKED is not None:
            conf += f"PluginDir={next(UNPACKED.glob('usr/lib/*/slurm-wlm'))}\n"
        (folder / "slurm.conf").write_text(conf)
        (folder / "state").mkdir()
        self.environment = {"SLURM_CONF": str(folder / "slurm.conf"), **libraries()}
        munge = ["--force", f"--key-file={key}", f"--socket={folder}/munge.sock", f"--pid-file={folder}/munged.pid"]
        self._start("munged", "--foreground", *munge, f"--log-file={folder}/munged.log", f"--seed-file={folder}/seed")
        self._wait(lambda: (folder / "munge.sock").exists(), "munged")
        self._start("slurmctld", "-D")
        for name in ("n1", "n2"):
            (folder / f"spool.{name}").mkdir()
            step_daemon = ["-d", str(UNPACKED / "usr/sbin/slurmstepd-wlm")] if UNPACKED else []
            self._start("slurmd", "-D", "-N", name, *step_daemon)
        self._wait(lambda: self._sinfo() == ["idle", "idle"], "the nodes")

    def _start(self, name, *arguments):
        log = open(self.folder / f"{name}.{len(self.daemons)}.out", "w")
        env = {"PATH": SBIN, **self.environment}
        self.daemons.append(
            subprocess.Popen([DAEMONS[name], *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env)
        )

    def _sinfo(self):
        answer = subprocess.run(
            [DAEMONS["sinfo"], "-h", "-N", "-o", "%T"],
            env={"PATH": SBIN, **self.environment},
            capture_output=True,
            text=True,
        )
        return answer.stdout.split()

    def _wait(self, condition, what):
        deadline = time.monotonic() + 60
        while not condition():
            dead = [daemon.args[0] for daemon in self.daemons if daemon.poll() is not None]
            if dead or time.monotonic() > deadline:
                logs = "\n".join(path.read_text(errors="replace")[-1500:] for path in self.folder.glob("*.out"))
                self.close()
                raise OSError(f"{what}: no Slurm here ({dead} ended): {logs}")
            time.sleep(0.05)

    def close(self):
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in reversed(self.daemons):
            try:
                daemon.wait(timeout=20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait(timeout=20)


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    missing = [name for name, path in DAEMONS.items() if path is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"no Slurm of one's own here: it takes root and {missing or 'nothing else'}")
    # munge wants a folder that nobody else can write, all the way up.
    folder = pathlib.Path("/run") / f"ddprun-test-slurm-{os.getpid()}"
    folder.mkdir(mode=0o755)
    try:
        cluster = SlurmCluster(folder)
        try:
            yield cluster
        finally:
            cluster.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
