package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// A Backup is a copy of etcd's data at one moment.
type Backup struct{ dir string }

// Backup copies etcd's data while etcd is off, which nodes hardly notice. The copy is
// removed when the test ends.
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

// copyData replaces a folder by a copy of another. Files of etcd are mostly holes.
func (c *Cluster) copyData(from, to string) error {
	if err := c.run("", "rm", "-rf", to); err != nil {
		return err
	}
	return c.run("", "cp", "-a", "--sparse=always", from, to)
}

// Restore takes the control plane back to a backup. All its parts are started anew, as
// those that go on would hear nothing: their versions are of the future.
func (c *Cluster) Restore(t testing.TB, b Backup) {
	t.Helper()
	err := c.renew(func() error { return c.copyData(b.dir, dir+"/etcd") })
	if err != nil {
		t.Fatalf("restore: %v", err)
	}
}

// Wipe makes another, empty cluster, with the certificates and credentials of this one.
func (c *Cluster) Wipe(t testing.TB) {
	t.Helper()
	err := c.renew(func() error { return os.RemoveAll(c.path("etcd")) })
	if err == nil {
		err = c.allowJoin()
	}
	if err != nil {
		t.Fatalf("make the cluster anew: %v", err)
	}
}

// ReplaceAuthority gives the cluster another CA, with all certificates and credentials that
// the former one had signed. The data stay. What the nodes have is worth nothing then.
func (c *Cluster) ReplaceAuthority(t testing.TB) {
	t.Helper()
	err := c.renew(func() error {
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
	c.Kubectl(t, "-n", "kube-public", "delete", "configmap", "cluster-info") // it has the former CA, and is only made where there is none
	if err := c.allowJoin(); err != nil {
		t.Fatalf("replace the CA: %v", err)
	}
}

// renew stops all parts of the control plane, calls change, and starts them again.
func (c *Cluster) renew(change func() error) error {
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
