package vm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

// servers is a script that turns another network namespace of the machine into a host with the address 10.9.9.9. The host has an NFS server
// and an iSCSI server. While the link of the namespace is down, no server responds. tgtadm finds the socket of tgtd, because both
// namespaces share the file system.
const servers = `set -e
ip netns add srv && ip link add v0 type veth peer name v1 netns srv
ip addr add 10.9.9.1/24 dev v0 && ip link set v0 up
ip -n srv addr add 10.9.9.9/24 dev v1 && ip -n srv link set v1 up && ip -n srv link set lo up
modprobe nfsd; modprobe iscsi_tcp; modprobe loop
mkdir -p /srv/nfs && echo '/srv/nfs *(rw,no_root_squash,fsid=0,insecure,no_subtree_check,sync)' >/etc/exports
truncate -s 64M /srv/disk
ip netns exec srv sh -ec 'mkdir -p /var/lib/nfs/v4recovery; mount -t nfsd nfsd /proc/fs/nfsd; exportfs -a; rpc.mountd -N 3; rpc.nfsd -N 3 --grace-time 10 --lease-time 10 4; setsid tgtd -f >/var/log/tgtd 2>&1 </dev/null &'
until tgtadm --lld iscsi --op new --mode target --tid 1 -T iqn.2026-01.dev.islet:disk; do sleep 0.5; done
tgtadm --lld iscsi --op new --mode logicalunit --tid 1 --lun 1 -b /srv/disk
tgtadm --lld iscsi --op bind --mode target --tid 1 -I ALL
[ -s /etc/iscsi/initiatorname.iscsi ] || echo InitiatorName=iqn.2026-01.dev.islet:edge >/etc/iscsi/initiatorname.iscsi
systemctl start iscsid`

// stored returns a pod that mounts a volume at /data.
func stored(name, volume string, args ...string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 2
  volumes: [{name: data, %s}]
  containers:
  - {name: c, image: %q, imagePullPolicy: Never, args: ["%s"], volumeMounts: [{name: data, mountPath: /data}]}
`, name, volume, machine.Image, strings.Join(args, `", "`))
}

// TestStorage checks volumes of an NFS server and an iSCSI server, and an emptyDir on a file system with project quotas. While a server
// does not respond, only the pod that writes to this server may be blocked. Other pods, the deletion of another pod with its volume, and
// the agent must not wait. All data must exist after a power cut.
func TestStorage(t *testing.T) {
	const nfs, iscsi = "nfs: {server: 10.9.9.9, path: /}",
		"iscsi: {targetPortal: 10.9.9.9, iqn: 'iqn.2026-01.dev.islet:disk', lun: 1, fsType: ext4}"
	v, step := hardware(t, "islet describe idle-edge; islet describe server-edge; grep -E ' (nfs4|ext4|xfs) ' /proc/self/mountinfo; cat /var/log/tgtd; dmesg | tail -20", map[string]string{
		"server.yaml": stored("server", nfs, "journal", "/data/records", "20ms"), "idle.yaml": stored("idle", nfs, "sleep"),
		"disk.yaml": stored("disk", iscsi, "sleep"), "quota.yaml": stored("quota", "emptyDir: {sizeLimit: 8Mi}", "sleep"),
	})
	v.Run(`modprobe xfs; mkfs.xfs -q /dev/vdc && mkdir -p /var/lib/kubelet && echo '/dev/vdc /var/lib/kubelet xfs prjquota 0 0' >>/etc/fstab && mount /var/lib/kubelet
cp /payload/files/server.yaml /payload/files/disk.yaml /payload/files/quota.yaml /etc/kubernetes/manifests/`)
	v.Run(servers)
	v.Run("/root/islet/install.sh")
	step("installed")
	for _, pod := range []string{"server", "disk", "quota"} {
		running(v, pod)
	}
	v.Await("grep -qx 20 /srv/nfs/records")
	v.Run("islet exec disk-edge -- /podtool write /data/file kept")
	v.Run("grep 'volumes/kubernetes.io~iscsi' /proc/self/mountinfo | grep -q ' - ext4 '")
	if out, code := v.Try("islet exec quota-edge -- /podtool fill /data/much 9"); code == 0 ||
		!strings.Contains(out, "no space left") && !strings.Contains(out, "quota exceeded") {
		t.Errorf("more than the limit: %d %s", code, out)
	}
	step("NFS, iSCSI and a quota")

	v.Run("cp /payload/files/idle.yaml /etc/kubernetes/manifests/")
	running(v, "idle")
	v.Run("islet exec idle-edge -- /podtool write /data/idle kept && ip link set v0 down")
	v.Run("rm /etc/kubernetes/manifests/idle.yaml; cp /payload/files/p0.yaml /etc/kubernetes/manifests/")
	running(v, "p0")
	step("the server is gone, another pod starts")
	v.Await("! islet pods --no-headers | grep idle-edge")
	v.Run("[ $(grep -c 'volumes/kubernetes.io~nfs' /proc/self/mountinfo) = 1 ]")
	step("a pod whose server is gone is gone")
	v.Run("systemctl restart islet")
	running(v, "p0")
	running(v, "quota")
	step("the agent is restarted")
	v.Run("rm /etc/kubernetes/manifests/server.yaml") // its process waits in the kernel and cannot be killed
	v.Await("islet describe server-edge | grep -q Terminating")
	v.Run("ip link set v0 up")
	v.Await("! islet pods --no-headers | grep server-edge")
	last := strings.TrimSpace(v.Run("tail -1 /srv/nfs/records"))
	v.Run("cp /payload/files/server.yaml /etc/kubernetes/manifests/")
	v.Await("[ $(tail -1 /srv/nfs/records) -gt " + last + " ]")
	step("the server is back: what wrote to it is gone, and its successor goes on")

	v.Run("sync")
	v.PowerCut() // it also affects the servers
	v.Boot()
	v.Run(servers)
	for _, pod := range []string{"server", "disk", "quota"} {
		running(v, pod)
	}
	if out := v.Run("islet exec disk-edge -- /podtool cat /data/file"); !strings.HasPrefix(out, "kept") {
		t.Errorf("after a power cut: %q", out)
	}
	v.Run("rm /etc/kubernetes/manifests/*.yaml")
	v.Await("[ $(grep -cE 'volumes/kubernetes.io~(nfs|iscsi)|plugins/kubernetes.io/iscsi' /proc/self/mountinfo) = 0 ]")
	v.Await("! iscsiadm -m session")
	v.Run("grep -q . /srv/nfs/records && grep -q kept /srv/nfs/idle")
	step("after a power cut, and all deleted")
}
