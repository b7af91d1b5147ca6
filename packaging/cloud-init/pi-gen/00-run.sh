#!/bin/bash -e
# A step of a pi-gen stage: installs islet into the image. Copy the stage's folder 00-islet, with this file and with the folder
# files: the archive, install.sh, and if you want islet.yaml, edge.yaml, kubelet.yaml, bootstrap.kubeconfig, default.islet.
set --
[ ! -e files/islet.yaml ] || set -- --config files/islet.yaml
DESTDIR=$ROOTFS_DIR sh files/install.sh "$@" files/islet-*-linux-*.tar.gz
for f in edge.yaml kubelet.yaml; do
	[ ! -e "files/$f" ] || install -D -m 0644 "files/$f" "$ROOTFS_DIR/etc/islet/$f"
done
[ ! -e files/bootstrap.kubeconfig ] || install -D -m 0600 files/bootstrap.kubeconfig "$ROOTFS_DIR/etc/islet/bootstrap.kubeconfig"
[ ! -e files/default.islet ] || install -D -m 0644 files/default.islet "$ROOTFS_DIR/etc/default/islet"
for line in "$ROOTFS_DIR/boot/firmware/cmdline.txt" "$ROOTFS_DIR/boot/cmdline.txt"; do
	[ ! -f "$line" ] || grep -q cgroup_enable=memory "$line" || sed -i '1s/[[:space:]]*$/ cgroup_enable=memory cgroup_memory=1/' "$line"
done
