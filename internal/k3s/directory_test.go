package k3s_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/islet-edge/islet/internal/k3s"
	"github.com/islet-edge/islet/internal/k3s/k3stest"
)

// mustKey returns a key that no request has.
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

// cluster returns the content of a directory for a server's node.
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

// TestStore checks that a directory is replaced as a whole, also if a check fails, and that nothing of the former one stays.
func TestStore(t *testing.T) {
	s := k3stest.Start(t)
	root := filepath.Join(t.TempDir(), "state", "k3s")
	lock, err := k3s.Lock(root)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if _, err := k3s.Lock(root); err == nil {
		t.Error("two commands have the lock")
	}
	first, second := cluster(t, s), cluster(t, s)
	first.Token = s.Token()
	second.Record.Node = "other"
	d := k3s.Current(root)
	bad := errors.New("bad")
	good, fails := func() error { return nil }, func() error { return bad }
	if err := k3s.Store(root, first, nil, fails); !errors.Is(err, bad) {
		t.Error(err)
	}
	if all, err := os.ReadDir(root); len(all) > 0 || err != nil {
		t.Errorf("after a failure: %v, %v", all, err)
	}
	for i, store := range []struct {
		c     *k3s.Cluster
		check func() error
		want  *k3s.Cluster
	}{{first, good, first}, {second, fails, first}, {first, good, first}, {second, good, second}, {first, fails, second}} {
		if err := k3s.Store(root, store.c, nil, store.check); (err == nil) != (store.c == store.want) {
			t.Errorf("%d: %v", i, err)
		}
		r, err := d.Record()
		if err != nil {
			t.Fatal(err)
		}
		p, written, err := d.Pair(k3s.ForClient)
		if err != nil {
			t.Fatal(err)
		}
		token, err := d.Token()
		if *r != store.want.Record || !p.Leaf.Equal(store.want.Client.Leaf) || time.Since(written) > time.Hour ||
			(token.Password != "") != (store.want.Token != "") || err != nil {
			t.Errorf("%d: %+v, %v, %+v, %v", i, r, written, token, err)
		}
		if all, err := os.ReadDir(root); len(all) != 2 || err != nil { // the directory and the link
			t.Errorf("%d: %v, %v", i, all, err)
		}
		cfg, err := clientcmd.BuildConfigFromFlags("", d.Kubeconfig())
		if err != nil || cfg.Host != s.URL || cfg.CertFile != d.PairFile(k3s.ForClient) || cfg.CAFile != d.ServerCA() {
			t.Errorf("%d: %+v, %v", i, cfg, err)
		}
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
