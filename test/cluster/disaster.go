package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// A Backup is a snapshot of etcd's data.
type Backup struct{ dir string }

// Backup stops etcd, copies its data and starts it again. The interruption is so short that most nodes are not
// affected. The copy is removed when the test ends.
func (c *Cluster) Backup(t testing.TB) Backup {
	t.Helper()
	b := Backup{dir: dir + "/backup-" + Name(t)}
	t.Cleanup(func() {
		if err := os.RemoveAll(c.path(filepath.Base(b.dir))); err != nil {
			t.Error(err)
		}
	})
	c.halt("etcd")
	for _, step := range []func() error{func() error { return c.copyData(dir+"/etcd", b.dir) }, c.startEtcd, c.connect} {
		if err := step(); err != nil {
			t.Fatalf("back up: %v", err)
		}
	}
	return b
}

// copyData replaces a folder with a copy of another folder. It preserves holes, because etcd's files
// are sparse.
func (c *Cluster) copyData(from, to string) error {
	if err := c.run("", "rm", "-rf", to); err != nil {
		return err
	}
	return c.run("", "cp", "-a", "--sparse=always", from, to)
}

// Restore replaces etcd's data with a backup. It restarts all parts of the control plane. Without a
// restart, a part would get no watch events, because its resource version is later than every
// resource version in the backup.
func (c *Cluster) Restore(t testing.TB, b Backup) {
	t.Helper()
	err := c.restartWith(func() error { return c.copyData(b.dir, dir+"/etcd") })
	if err != nil {
		t.Fatalf("restore: %v", err)
	}
}

// Wipe replaces the cluster with an empty one with the same certificates and credentials.
func (c *Cluster) Wipe(t testing.TB) {
	t.Helper()
	err := c.restartWith(func() error { return os.RemoveAll(c.path("etcd")) })
	if err == nil {
		err = c.allowJoin()
	}
	if err != nil {
		t.Fatalf("create the cluster again: %v", err)
	}
}

// ReplaceAuthority replaces the cluster's CA. It also replaces all certificates and credentials of
// the control plane that the former CA has signed. The cluster's data stays. The credentials of the
// nodes become invalid.
func (c *Cluster) ReplaceAuthority(t testing.TB) {
	t.Helper()
	err := c.restartWith(func() error {
		for _, pattern := range []string{"pki/ca.*", "pki/apiserver.*", "pki/apiserver-kubelet-client.*", "*.conf"} {
			files, err := filepath.Glob(c.path(pattern))
			if err != nil {
				return err
			}
			for _, f := range files {
				if err := os.Remove(f); err != nil {
					return err
				}
			}
		}
		return c.credentials()
	})
	if err != nil {
		t.Fatalf("replace the CA: %v", err)
	}
	// The existing ConfigMap cluster-info contains the former CA. allowJoin creates the ConfigMap
	// only if it is missing.
	c.Kubectl(t, "-n", "kube-public", "delete", "configmap", "cluster-info")
	if err := c.allowJoin(); err != nil {
		t.Fatalf("replace the CA: %v", err)
	}
}

// restartWith stops all parts of the control plane, calls change, and starts all parts again.
func (c *Cluster) restartWith(change func() error) error {
	for _, part := range []string{"kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd"} {
		c.halt(part)
	}
	for _, step := range []func() error{change, c.startEtcd, c.startAPIServer, c.connect, c.startControllers} {
		if err := step(); err != nil {
			return fmt.Errorf("%w\n%s", err, c.logs())
		}
	}
	return nil
}
