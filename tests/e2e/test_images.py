# SPDX-License-Identifier: Apache-2.0
"""deploy/Dockerfile's images, built by buildah without a registry and run: sizes, users, volumes, a list of what is in them.

The base is a Debian 12 by debootstrap, named by its digest; the programs are those of this build (deploy/image/arrange.py), as
compiling them in the image would take an hour. Of the Dockerfile's own compiling all is run up to CMake's configuring. Sizes, lists
and logs are left in the build folder's test-report/images.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest
from conftest import BUILD, REPO, TOKEN, TRAIN, clean_environment, kept_cache, run

REPORT = BUILD / "test-report" / "images"
MIRROR = os.environ.get("DEBIAN_MIRROR", "http://deb.debian.org/debian")
LAUNCHER_MAX = 31_000_000  # bytes, unpacked
USER = 4711  # neither root nor the image's own
TRAINING = ["--dataset", "synthetic", "--model", "simple-cnn", "--batch-size", "8", "--max-steps", "2", "--log-every", "1", "--no-eval"]
ENVIRONMENT = clean_environment(BUILDAH_ISOLATION="chroot", **kept_cache())

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="building images needs root here"),
    pytest.mark.skipif(os.uname().machine != "x86_64", reason="the wheel is for x86-64"),
    pytest.mark.skipif(not os.path.exists(TRAIN), reason="built without LibTorch"),
]


class Images:
    """buildah with a storage of its own."""

    def __init__(self, folder):
        self.folder = folder
        self.buildah = ["buildah", "--root", folder / "storage", "--runroot", folder / "run"]

    def __call__(self, *words, timeout=300, **more):
        done = run([*self.buildah, *words], env=ENVIRONMENT, timeout=timeout, **more)
        assert done.returncode == 0, done
        return done.stdout.strip()

    def build(self, log, *words, dockerfile=REPO / "deploy" / "Dockerfile", timeout=900):
        command = [*self.buildah, "build", "--pull-never", "--build-arg", f"DEBIAN={self.base}", "-f", dockerfile, *words, REPO]
        ignore = ["--ignorefile", REPO / "deploy" / "Dockerfile.dockerignore"]
        done = run([*command[:-1], *ignore, command[-1]], env=ENVIRONMENT, timeout=timeout)
        (REPORT / f"{log}.log").write_text(done.stdout + done.stderr)
        assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]

    def root(self, image):
        """The files of a container of it, for reading."""
        return pathlib.Path(self("mount", self("from", "--pull-never", image)))

    def call(self, image, *arguments, command=None, user="", volume=None, **variables):
        """As `docker run IMAGE ARGUMENTS`; `command`: in place of the entry point."""
        container = self("from", "--pull-never", image)
        config = json.loads(self("inspect", "--type", "image", image))["OCIv1"]["config"]
        flags = ["--user", user or config["User"], "--workingdir", config["WorkingDir"]]
        flags += [word for name, value in {"DDPRUN_TOKEN": TOKEN, **variables}.items() for word in ("--env", f"{name}={value}")]
        flags += ["--volume", f"{volume}:/work"] if volume else []
        words = command or config["Entrypoint"]
        done = run([*self.buildah, "run", *flags, container, "--", *words, *arguments], env=ENVIRONMENT)
        self("rm", container)
        return done


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Both images, `ddprun-launcher` and `ddprun`."""
    tools = run(["bash", "-c", f". {REPO}/deploy/common.sh; echo $images_environment"], env=ENVIRONMENT).stdout.strip()
    if shutil.which("buildah") is None or shutil.which("debootstrap") is None or not os.path.exists(f"{tools}/.installed"):
        done = run([REPO / "deploy" / "setup.sh", "--images"], env=ENVIRONMENT, timeout=900)
        assert done.returncode == 0, done.stderr
    shutil.rmtree(REPORT, ignore_errors=True)
    REPORT.mkdir(parents=True)
    folder = BUILD / "images"  # beside LibTorch where possible, so that links take no space
    shutil.rmtree(folder, ignore_errors=True)
    made = Images(folder)
    made.tools = pathlib.Path(tools)
    try:
        done = run(["debootstrap", "--variant=minbase", "bookworm", folder / "base", MIRROR], timeout=600)
        assert done.returncode == 0, done.stdout[-2000:]
        container = made("from", "scratch")
        made("copy", "-q", container, folder / "base", "/")
        made("commit", "-q", "--rm", container, "localhost/debian:12")
        shutil.rmtree(folder / "base")
        made.base = "localhost/debian@" + made("images", "--format", "{{.Digest}}", "localhost/debian:12")
        contexts = []
        for part in ("launcher", "train"):
            done = run([REPO / "deploy" / "image" / "arrange.py", part, BUILD, folder / part], timeout=300)
            assert done.returncode == 0, done.stderr
            contexts += ["--build-context", f"programs-{part}={folder / part}"]
        made.build("launcher", *contexts, "--target", "launcher", "-t", "ddprun-launcher")
        made.build("train", *contexts, "-t", "ddprun")
        yield made
    finally:
        for words in (("rm", "--all"), ("rmi", "--all", "--force")):
            run([*made.buildah, *words], env=ENVIRONMENT)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def out(tmp_path):
    """A folder that the calling user has made."""
    tmp_path.chmod(0o755)
    folder = tmp_path / "out"
    folder.mkdir()
    os.chown(folder, USER, USER)
    return folder


def owners(folder):
    return {path.stat().st_uid for path in folder.rglob("*")}


def test_the_launcher_is_small(images):
    archive = images.folder / "launcher.oci"
    images("push", "-q", "localhost/ddprun-launcher", f"oci:{archive}:latest")
    sizes = {}
    for image in ("ddprun-launcher", "ddprun"):
        sizes[image] = sum(path.lstat().st_size for path in images.root(f"localhost/{image}").rglob("*") if not path.is_dir())
    sizes["ddprun-launcher, compressed"] = sum(path.stat().st_size for path in (archive / "blobs").rglob("*") if path.is_file())
    (REPORT / "sizes.json").write_text(json.dumps(sizes, indent=1) + "\n")
    assert sizes["ddprun-launcher"] <= LAUNCHER_MAX, sizes


@pytest.mark.parametrize("image", ["ddprun-launcher", "ddprun"])
def test_an_image_says_who_it_is_and_what_it_takes(images, image):
    config = json.loads(images("inspect", "--type", "image", f"localhost/{image}"))["OCIv1"]["config"]
    assert (config["User"], config["WorkingDir"]) == ("1000:1000", "/work")  # a number: Kubernetes' runAsNonRoot asks for one
    done = images.call(f"localhost/{image}", "--help")
    assert done.returncode == 0 and ("--nnodes" if image == "ddprun-launcher" else "WORLD_SIZE") in done.stdout, done
    version = images.call(f"localhost/{image}", command=["ddprun", "--version"]).stdout
    assert re.fullmatch(r"ddprun \d+\.\d+\.\d+.*\n", version), version
    for program in ("ddpctl", "ddprun-rendezvous"):
        assert images.call(f"localhost/{image}", "--version", command=[program]).stdout == version.replace("ddprun", program)


def test_two_workers_of_the_launcher_write_as_the_calling_user(images, out):
    script = "echo $RANK of $WORLD_SIZE > rank-$RANK; id -u"
    arguments = ["--standalone", "--nproc-per-node", "2", "sh", "-c", script]
    done = images.call("localhost/ddprun-launcher", *arguments, user=f"{USER}:{USER}", volume=out)
    assert done.returncode == 0 and done.stdout.count(str(USER)) == 2, done
    assert sorted(path.read_text() for path in out.glob("rank-*")) == ["0 of 2\n", "1 of 2\n"]
    assert owners(out) == {USER}


def test_train_writes_as_the_calling_user(images, out):
    done = images.call("localhost/ddprun", *TRAINING, user=f"{USER}:{USER}", volume=out, NPROC_PER_NODE="2", OMP_NUM_THREADS="1")
    assert done.returncode == 0, done
    assert len(re.findall(r"batch \d+/\d+ loss", done.stdout)) == 4, done
    assert list(out.rglob("cifar_net.pth")) and owners(out) == {USER}


READ_ONLY = """
root=$1 work=$2; shift 2
mount --rbind "$root" "$root"
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for name in null zero full random urandom; do touch "$root/dev/$name"; mount --bind "/dev/$name" "$root/dev/$name"; done
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount --bind "$work" "$root/work"
mount -o remount,ro,bind "$root"
ip link set lo up
exec chroot --userspec=1000:1000 "$root" /usr/bin/env -i "$@"
"""


def test_a_pods_read_only_root_serves_the_launcher(images, tmp_path):
    """As deploy/kubernetes runs the rendezvous service: user 1000, nothing can be written but the volumes."""
    work = tmp_path / "work"
    work.mkdir()
    os.chown(work, 1000, 1000)
    script = """cd /work; ! touch /opt/ddprun/file 2>/dev/null || exit 7
    ddprun-rendezvous --host 127.0.0.1 --port 29500 --journal /work/runs &
    until ddpctl status --rdzv-endpoint 127.0.0.1:29500 --timeout 5 >/dev/null 2>&1; do kill -0 $! || exit 8; sleep 0.1; done
    ddprun --nnodes 1 --rdzv-endpoint 127.0.0.1:29500 --rdzv-id run --rdzv-conf is_host=false --nproc-per-node 2 sh -c 'echo rank $RANK'
    code=$?; kill $!; exit $code"""
    command = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-ec", READ_ONLY, "read-only"]
    environment = ["PATH=/opt/ddprun/bin:/usr/bin:/bin", "HOME=/tmp", f"DDPRUN_TOKEN={TOKEN}"]
    done = run([*command, images.root("localhost/ddprun-launcher"), work, *environment, "sh", "-c", script])
    assert done.returncode == 0 and "[0] rank 0" in done.stdout and "[1] rank 1" in done.stdout, done
    assert list(work.glob("runs*"))


def test_a_users_own_image_takes_the_launcher(images, tmp_path):
    """With another C library than the launcher's own image: nothing else of that is copied."""
    dockerfile = tmp_path / "Dockerfile"
    copied = "COPY --from=localhost/ddprun-launcher /opt/ddprun /opt/ddprun"
    rest = 'ENV PATH=/opt/ddprun/bin:/usr/bin:/bin\nUSER 1000:1000\nWORKDIR /tmp\nENTRYPOINT ["ddprun"]\n'
    dockerfile.write_text(f"FROM {images.base}\n{copied}\n{rest}")
    images.build("derived", "-t", "mine", dockerfile=dockerfile)
    done = images.call("localhost/mine", "--standalone", "--nproc-per-node", "2", "bash", "-c", "echo rank $RANK")
    assert done.returncode == 0 and "rank 0" in done.stdout and "rank 1" in done.stdout, done


@pytest.mark.parametrize("image", ["ddprun-launcher", "ddprun"])
def test_what_is_in_an_image_is_listed(images, image):
    root = images.root(f"localhost/{image}")
    done = run([REPO / "deploy" / "image" / "sbom.py", image, root])
    assert done.returncode == 0, done.stderr
    path = REPORT / f"{image}.spdx.json"
    path.write_text(done.stdout)
    checked = run([images.tools / "bin" / "pyspdxtools", "--infile", path], timeout=300)
    assert checked.returncode == 0, checked
    listed = {one["name"]: one["versionInfo"] for one in json.loads(done.stdout)["packages"]}
    assert {"ddprun", "libgrpc-dev", "libprotobuf-dev", "libabsl-dev", "libssl-dev", "libsqlite3-dev", "libc6"} <= set(listed), listed
    assert ("busybox" in listed) == (image == "ddprun-launcher")
    if image == "ddprun":
        assert {"torch", "libcairo2-dev", "curl", "dpkg"} <= set(listed) and any(name.startswith("nvidia-nccl") for name in listed), listed
        assert listed["dpkg"] == run(["chroot", root, "dpkg-query", "-W", "-f", "${Version}", "dpkg"]).stdout
    for name in json.loads((root / "opt/ddprun/programs-launcher.spdx.json").read_text())["packages"]:
        assert name["name"] == "ddprun" or (root / "opt/ddprun/licenses" / name["name"]).exists(), name


def test_the_dockerfiles_own_compiling_is_configured(images, tmp_path):
    """All of its first stage before the compiler begins: what it installs, copies and configures."""
    text = (REPO / "deploy" / "Dockerfile").read_text()
    first = text.partition("RUN --mount=type=cache")[0]
    assert first.rstrip().splitlines()[-1].startswith("RUN cmake -S . -B build-launcher")
    dockerfile = tmp_path / "Dockerfile"
    dockerfile.write_text(first)
    images.build("configure", "-t", "configured", dockerfile=dockerfile, timeout=1500)
    root = images.root("localhost/configured")
    assert "DDPRUN_WITH_TORCH:BOOL=OFF" in (root / "src/build-launcher/CMakeCache.txt").read_text()
    assert subprocess.run(["chroot", root, "ninja", "-C", "/src/build-launcher", "-n", "ddprun"], capture_output=True).returncode == 0
