# SPDX-License-Identifier: Apache-2.0
# To be sourced (by bash): a system that debootstrap has made in a folder, entered with chroot.

# The site's own, which a new machine there has too: name servers and certificates.
copy_site() { # ROOT
  cp /etc/resolv.conf "$1/etc/resolv.conf"
  mkdir -p "$1/usr/local/share/ca-certificates"
  cp /usr/local/share/ca-certificates/*.crt "$1/usr/local/share/ca-certificates/" 2>/dev/null || true
}

# In a pid and mount namespace of its own, so that nothing outlives it. $pip_cache, if set, becomes pip's.
inside() { # ROOT COMMAND...
  unshare --mount --pid --fork --kill-child bash -c '
    set -e
    root=$1 pip=$2; shift 2
    mount --bind "$root" "$root"
    [ -z "$pip" ] || { mkdir -p "$root/root/.cache/pip" && mount --bind "$pip" "$root/root/.cache/pip"; }
    mount -t proc proc "$root/proc"
    mount -t tmpfs tmpfs "$root/dev" -o mode=755
    for node in null zero full random urandom tty; do touch "$root/dev/$node"; mount --bind "/dev/$node" "$root/dev/$node"; done
    mkdir "$root/dev/pts" "$root/dev/shm"
    mount -t devpts devpts "$root/dev/pts" -o newinstance,ptmxmode=0666
    ln -s pts/ptmx "$root/dev/ptmx"; ln -s /proc/self/fd "$root/dev/fd"
    mount -t tmpfs tmpfs "$root/dev/shm"
    mount -t sysfs sysfs "$root/sys"
    exec chroot "$root" /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
      DEBIAN_FRONTEND=noninteractive ${PIP_CERT:+PIP_CERT=$PIP_CERT} ${http_proxy:+http_proxy=$http_proxy} \
      ${https_proxy:+https_proxy=$https_proxy} "$@"
  ' inside "$1" "${pip_cache:-}" "${@:2}"
}
