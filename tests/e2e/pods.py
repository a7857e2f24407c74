# SPDX-License-Identifier: Apache-2.0
"""Pods as processes, without a cluster: each has a network, a root file system, a user and the capabilities of its own, and gets
what Kubernetes would make of its template: variables, volumes, names, signals. Needs root.

Not there: images (a pod has this machine's /usr, and the programs under test in /opt/ddprun/bin), seccomp, limits of resources.
"""

import contextlib
import os
import re
import signal
import subprocess

import pytest
from conftest import BIN, SESSION, wait_for
from hosts import Host

ROOT_FOLDERS = ("etc", "usr", "proc", "sys")
DEVICES = ("null", "zero", "full", "random", "urandom")
SIZES = {"Gi": "G", "Mi": "M"}
SWITCH = "10.79.0.254"


def expanded(text, env):
    """$(NAME) of values and arguments, which Kubernetes replaces where there is such a variable."""
    return re.sub(r"\$\((\w+)\)", lambda found: env.get(found[1], found[0]), text)


def value_of(entry, container_env, pod):
    """The value of one variable of a container, as the kubelet makes it."""
    source = entry.get("valueFrom")
    if source is None:
        return expanded(entry.get("value", ""), container_env)
    if "configMapKeyRef" in source:
        return pod.cluster.config[source["configMapKeyRef"]["name"]][source["configMapKeyRef"]["key"]]
    if "secretKeyRef" in source:
        return pod.cluster.secrets[source["secretKeyRef"]["name"]][source["secretKeyRef"]["key"]]
    path = source["fieldRef"]["fieldPath"]
    if path in ("metadata.name", "status.podIP"):
        return pod.name if path == "metadata.name" else pod.host.address
    kind, key = path.removeprefix("metadata.").removesuffix("']").split("['")
    return {"labels": pod.labels, "annotations": pod.annotations}[kind].get(key, "")


class Pod:
    """One container of a template. `address`: of this pod; a pod that replaces it has another."""

    def __init__(self, cluster, template, name, address, labels=None, annotations=None, extra_env=None):
        self.cluster, self.name, self.spec = cluster, name, template["spec"]
        self.labels = {**template["metadata"].get("labels", {}), **(labels or {})}
        self.annotations = annotations or {}
        self.container = self.spec["containers"][0]
        self.folder = cluster.folder / f"{name}-{address}"
        self.folder.mkdir()
        self.root = self.folder / "root"
        self.root.mkdir()
        self.host = Host(address, ("net", "mount", "uts"))
        cluster.plug(self.host)
        self._make_root()
        env = {"PATH": "/opt/ddprun/bin:/usr/bin:/bin", "HOSTNAME": name, "KUBERNETES_SERVICE_HOST": "10.79.0.1", **(extra_env or {})}
        for entry in self.container.get("env", []):
            env[entry["name"]] = value_of(entry, env, self)
        env.update(extra_env or {})
        self.env = {**env, "TEST_SESSION": SESSION}
        self.out = open(self.folder / "log", "wb")
        command = [expanded(word, env) for word in (*self.container["command"], *self.container.get("args", []))]
        self.process = subprocess.Popen(self.prefix + command, stdin=subprocess.DEVNULL, stdout=self.out, stderr=self.out,
                                        start_new_session=True)  # fmt: skip

    def _make_root(self):
        """The root file system: this machine's programs, read-only, and what the pod's volumes are."""
        security = self.container["securityContext"]
        assert security["readOnlyRootFilesystem"] and security["capabilities"] == {"drop": ["ALL"]}
        root, lines = self.root, [f"mount -t tmpfs tmpfs {self.root}"]
        for name in ROOT_FOLDERS:
            lines.append(f"mkdir {root}/{name} && mount --rbind /{name} {root}/{name}")
        lines += [f"ln -s usr/{name} {root}/{name}" for name in ("bin", "sbin", "lib", "lib64")]
        lines.append(f"mkdir -p {root}/opt/ddprun/bin {root}/dev && mount --bind {BIN} {root}/opt/ddprun/bin")
        lines += [f"touch {root}/dev/{name} && mount --bind /dev/{name} {root}/dev/{name}" for name in DEVICES]
        message = self.folder / "termination-log"
        message.touch()
        message.chmod(0o666)
        for folder in self.cluster.image_folders:
            lines.append(f"mkdir -p {root}{folder} && mount --bind {folder} {root}{folder}")
        hosts = self.cluster.names_file
        lines += [f"touch {root}/dev/termination-log", f"mount --bind {message} {root}/dev/termination-log"]
        lines.append(f"mount --bind {hosts} {root}/etc/hosts")
        for mount in self.container["volumeMounts"]:
            lines += self._mount(mount, next(one for one in self.spec["volumes"] if one["name"] == mount["name"]))
        lines += [f"mount -o remount,ro {root}", f"echo {self.name} > /proc/sys/kernel/hostname"]
        self.host.run("sh", "-ec", "\n".join(lines))

    def _mount(self, mount, volume):
        user = self.spec["securityContext"]["runAsUser"]
        at = f"{self.root}{mount['mountPath']}"
        make = [f"mkdir -p {at}"]
        if "emptyDir" in volume and volume["emptyDir"].get("medium") == "Memory":
            size = volume["emptyDir"]["sizeLimit"]
            return [*make, f"mount -t tmpfs -o mode=1777,size={size[:-2]}{SIZES[size[-2:]]} tmpfs {at}"]
        if "secret" in volume:
            return [*make, f"mount --bind {self._secret_folder(volume)} {at}"]
        claim = volume.get("persistentVolumeClaim")
        source = self.cluster.claim(claim["claimName"]) if claim else self.folder / volume["name"]
        if not claim and volume["name"] in self.cluster.files:
            source = self.cluster.files[volume["name"]]  # a projected volume, made by the test
        else:
            source.mkdir(exist_ok=True)
            os.chown(source, user, self.spec["securityContext"]["fsGroup"])
        return [*make, f"mount --bind {source} {at}"]

    def _secret_folder(self, volume):
        """With the mode and the group that the kubelet gives to its files."""
        folder = self.folder / volume["name"]
        folder.mkdir()
        for name, text in self.cluster.secrets[volume["secret"]["secretName"]].items():
            file = folder / name
            file.write_text(text)
            file.chmod(volume["secret"]["defaultMode"])
            os.chown(file, 0, self.spec["securityContext"]["fsGroup"])
        return folder

    @property
    def prefix(self):
        context = self.spec["securityContext"]
        assert context["runAsNonRoot"] and self.container["securityContext"]["allowPrivilegeEscalation"] is False
        return [*self.host.prefix, "chroot", str(self.root), "setpriv", f"--reuid={context['runAsUser']}",
                f"--regid={context['runAsGroup']}", f"--groups={context['fsGroup']}", "--no-new-privs", "--bounding-set=-all",
                "--inh-caps=-all", "--", "env", "-i", "-C", self.container.get("workingDir", "/"),
                *(f"{name}={value}" for name, value in self.env.items())]  # fmt: skip

    def probe(self, kind):
        """Whether the container's probe succeeds now."""
        probe = self.container[kind]
        if "tcpSocket" in probe:  # the kubelet connects, from outside of the pod
            port = next(one["containerPort"] for one in self.container["ports"] if one["name"] == probe["tcpSocket"]["port"])
            command = [*self.cluster.switch.prefix, "timeout", "5", "bash", "-c", f": < /dev/tcp/{self.host.address}/{port}"]
        else:
            command = self.prefix + probe["exec"]["command"]
        return subprocess.run(command, capture_output=True, text=True, timeout=30).returncode == 0

    def log(self):
        return (self.folder / "log").read_text(errors="replace")

    def termination_message(self):
        return (self.folder / "termination-log").read_text()

    def await_log(self, text, seconds=40):
        wait_for(f"'{text}' of {self.name}: {self.log()}", lambda: text in self.log() or self.process.poll() is not None, seconds)
        assert text in self.log(), self.log()

    def terminate(self):
        """What begins a pod's end."""
        self.process.send_signal(signal.SIGTERM)

    def kill(self):
        self.process.kill()
        self.process.wait(timeout=30)

    def wait(self, seconds=60):
        return self.process.wait(timeout=seconds)

    def close(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(timeout=30)
        self.out.close()
        self.host.close()


class Cluster:
    """A network of pods, and what they are given: secrets, configuration maps, claims, the names of the DNS. `image_folders`: of this
    machine, which the image has at the same place."""

    def __init__(self, folder):
        self.folder, self.secrets, self.config, self.files, self.names = folder, {}, {}, {}, {}
        self.image_folders = []
        self.names_file = folder / "hosts"
        self.names_file.write_text("127.0.0.1 localhost\n")
        self.names_file.chmod(0o644)
        folder.chmod(0o755)
        self._pods, self._addresses = [], 0
        self.switch = Host(SWITCH)
        links = f"ip link add eth0 type bridge; ip address add {SWITCH}/24 dev eth0; ip link set eth0 up; ip link set lo up"
        self.switch.run("sh", "-ec", links)

    def plug(self, host):
        number = host.address.rsplit(".", 1)[1]
        port = f"port{number}"
        self.switch.run("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", str(host.pid))
        self.switch.run("ip", "link", "set", port, "master", "eth0", "up")
        # A pod at the address of another has its hardware address, too: nobody must learn it anew.
        host.run("ip", "link", "set", "eth0", "address", f"02:00:0a:4f:00:{int(number):02x}")
        host.run("sh", "-ec", f"ip address add {host.address}/24 dev eth0; ip link set eth0 up; ip link set lo up")
        host.await_link()

    def claim(self, name):
        return self.folder / f"claim-{name}"

    def start(self, template, name, names=(), instead_of=None, **more):
        """A pod at an address of its own, or at that of a pod that has ended, as behind a Service; `names`: of the DNS, from now
        on its own."""
        if instead_of is not None:
            self._pods.remove(instead_of)
            self.switch.run("ip", "link", "delete", f"port{instead_of.host.address.rsplit('.', 1)[1]}")
            instead_of.close()
            address = instead_of.host.address
        else:
            self._addresses += 1
            address = f"10.79.0.{self._addresses}"
        pod = Pod(self, template, name, address, **more)
        self._pods.append(pod)
        for one in names:
            self.publish(one, pod)
        return pod

    def publish(self, name, pod):
        self.names[name] = pod.host.address
        text = "127.0.0.1 localhost\n" + "".join(f"{address} {one}\n" for one, address in self.names.items())
        with open(self.names_file, "r+") as file:  # mounted: the same file
            file.write(text)
            file.truncate()

    def close(self):
        for pod in self._pods:
            pod.close()
        self.switch.close()


@contextlib.contextmanager
def made_cluster(folder):
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    one = Cluster(folder)
    try:
        yield one
    finally:
        one.close()


def pod_of_job(cluster, job, index, uid, **more):
    """A pod of an Indexed Job: what the Job's controller gives it."""
    name = job["metadata"]["name"]
    labels = {"batch.kubernetes.io/job-name": name, "batch.kubernetes.io/controller-uid": uid, **more.pop("labels", {})}
    labels["batch.kubernetes.io/job-completion-index"] = str(index)
    annotations = {"batch.kubernetes.io/job-completion-index": str(index), **more.pop("annotations", {})}
    service = more.pop("subdomain", job["spec"]["template"]["spec"].get("subdomain"))
    return cluster.start(job["spec"]["template"], f"{name}-{index}", names=more.pop("names", [f"{name}-{index}.{service}"]),
                         labels=labels, annotations=annotations,
                         extra_env={"JOB_COMPLETION_INDEX": str(index), **more.pop("extra_env", {})}, **more)  # fmt: skip
