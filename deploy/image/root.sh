#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Run by deploy/Dockerfile in a Debian: makes the root file system of the launcher's image in FOLDER, out of this system's
# files. It has the C library and its resolver, busybox for a shell, and a list of the packages as scanners read it.
#
#   root.sh PACKAGES_TXT FOLDER
set -eu

packages=$(sed -n '/^\[image\]$/,/^\[/{/^[^#[]/p}' "$1")
root=$2
apt-get update -q
# shellcheck disable=SC2086  # names of packages
DEBIAN_FRONTEND=noninteractive apt-get install -yq --no-install-recommends $packages

mkdir -p "$root/etc" "$root/usr/bin" "$root/usr/lib" "$root/usr/lib64" "$root/var/lib/dpkg/status.d" "$root/dev" "$root/proc" "$root/sys"
install -d -m 1777 "$root/tmp" "$root/work"
ln -s usr/bin "$root/bin"
ln -s usr/bin "$root/usr/sbin"
ln -s usr/bin "$root/sbin"
ln -s usr/lib "$root/lib"
ln -s usr/lib64 "$root/lib64"

cp -a --parents /usr/lib64/ld-linux-*.so.* "$root"
for name in ld-linux-\* libc libm libdl libpthread librt libresolv libnss_dns libnss_files; do
  cp -a --parents /usr/lib/*-linux-gnu/$name.so.* "$root"
done
cp /bin/busybox "$root/usr/bin/busybox"
for applet in $(busybox --list); do
  [ "$applet" = busybox ] || ln -s busybox "$root/usr/bin/$applet"
done

cp -L /etc/os-release "$root/etc/os-release"
echo 'hosts: files dns' >"$root/etc/nsswitch.conf"
printf 'root:x:0:0:root:/root:/bin/sh\nddprun:x:1000:1000:ddprun:/work:/bin/sh\n' >"$root/etc/passwd"
printf 'root:x:0:\nddprun:x:1000:\n' >"$root/etc/group"

for package in base-files libc6 $packages; do
  dpkg-query -s "$package" >"$root/var/lib/dpkg/status.d/$package"
  mkdir -p "$root/usr/share/doc/$package"
  cp -L "/usr/share/doc/$package/copyright" "$root/usr/share/doc/$package/"
done
