package k3s_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/islet-edge/islet/internal/k3s"
	"github.com/islet-edge/islet/internal/k3s/k3stest"
)

// This function returns a key that no request has.
func mustKey(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func csrKey(s *k3stest.Server) any { return s.LastKey() }

// This function returns the content of a directory for a server's node.
func cluster(t *testing.T, s *k3stest.Server) *k3s.Cluster {
	t.Helper()
	c := client(t, s)
	made := &k3s.Cluster{ClientCA: s.Client.PEM, ServerCA: s.Serving.PEM,
		Record: k3s.Record{Server: s.URL, APIServer: s.URL, Node: "pi", PasswordFile: "/p"}}
	var err error
	if made.Client, err = c.Issue(t.Context(), k3s.ForClient, node, s.Client.PEM); err != nil {
		t.Fatal(err)
	}
	if made.Serving, err = c.Issue(t.Context(), k3s.ForServing, node, s.Serving.PEM); err != nil {
		t.Fatal(err)
	}
	return made
}

// TestStore checks that a directory is replaced as a whole, and that the replacement can be undone.
func TestStore(t *testing.T) {
	s := k3stest.Start(t)
	root := filepath.Join(t.TempDir(), "state", "k3s")
	first, second := cluster(t, s), cluster(t, s)
	first.Token = s.Token()
	second.Record.Node = "other"
	undoFirst, err := k3s.Store(root, first)
	if err != nil {
		t.Fatal(err)
	}
	d := k3s.Current(root)
	check := func(want *k3s.Cluster) {
		t.Helper()
		r, err := d.Record()
		if err != nil {
			t.Fatal(err)
		}
		p, written, err := d.Pair(k3s.ForClient)
		if err != nil {
			t.Fatal(err)
		}
		token, err := d.Token()
		if *r != want.Record || !p.Leaf.Equal(want.Client.Leaf) || time.Since(written) > time.Hour ||
			(token.Password != "") != (want.Token != "") || err != nil {
			t.Errorf("%+v, %v, %+v, %v", r, written, token, err)
		}
	}
	check(first)
	cfg, err := clientcmd.BuildConfigFromFlags("", d.Kubeconfig())
	if err != nil || cfg.Host != s.URL || cfg.CertFile != d.PairFile(k3s.ForClient) || cfg.CAFile != d.ServerCA() {
		t.Errorf("%+v, %v", cfg, err)
	}
	for range 3 {
		undo, err := k3s.Store(root, second)
		if err != nil {
			t.Fatal(err)
		}
		check(second)
		if err := undo(); err != nil {
			t.Fatal(err)
		}
		check(first)
	}
	err = filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 && info.Mode().Type() != os.ModeSymlink {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if err := undoFirst(); err != nil {
		t.Error(err)
	}
	if _, err := d.Record(); !os.IsNotExist(err) {
		t.Errorf("after the first undo: %v", err)
	}
}

// TestStoreTogether checks that two commands do not write the same directory.
func TestStoreTogether(t *testing.T) {
	s := k3stest.Start(t)
	root := t.TempDir()
	lock, err := os.OpenFile(filepath.Join(root, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if _, err := k3s.Store(root, cluster(t, s)); err == nil {
		t.Error("both have written")
	}
}

// TestPassword checks that the password is created once, that the file of k3s is used, and that a strange file is an error.
func TestPassword(t *testing.T) {
	file := filepath.Join(t.TempDir(), "etc", "rancher", "node", "password")
	one, err := k3s.EnsurePassword(file)
	if len(one) != 32 || err != nil {
		t.Fatalf("%q, %v", one, err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if again, err := k3s.EnsurePassword(file); again != one || err != nil {
		t.Errorf("%q, %v", again, err)
	}
	for _, content := range []string{"", "\n", "a\nb", "\x00", strings.Repeat("a", 1000)} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := k3s.EnsurePassword(file); err == nil {
			t.Errorf("%q: %q", content, got)
		}
		if text, err := os.ReadFile(file); string(text) != content || err != nil {
			t.Errorf("%q was replaced by %q, %v", content, text, err)
		}
	}
}
