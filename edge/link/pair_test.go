package link

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"errors"

	"github.com/fsnotify/fsnotify"

	"github.com/islet-edge/islet/edge/kube/kubetest"
	"github.com/islet-edge/islet/internal/inputweight"
)

const childDir = "ISLET_TEST_PAIRS" // directory in which a child process saves pairs

func testPair(t testing.TB, ca *kubetest.CA) (cert, key []byte) {
	return ca.Client(t, "system:node:n", nil, time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
}

// TestSavePairsForEver is not a test. It runs in the child process of TestKilledWhileSaving.
func TestSavePairsForEver(t *testing.T) {
	dir := os.Getenv(childDir)
	if dir == "" {
		t.Skip("only as a child")
	}
	ca, p, now := kubetest.NewCA(t), pairFiles{dir: dir, prefix: "kubelet-client"}, time.Now()
	fmt.Println("begin")
	for n := 0; ; n++ {
		if _, _, err := p.pendingKey(); err != nil {
			t.Fatal(err)
		}
		cert, key := testPair(t, ca)
		if _, err := p.save(cert, key, now.Add(time.Duration(n)*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestKilledWhileSaving checks that a complete key pair exists after the agent was killed at a random moment. Only a few other files may be
// left.
func TestKilledWhileSaving(t *testing.T) {
	dir := t.TempDir()
	p := pairFiles{dir: dir, prefix: "kubelet-client"}
	cert, key := testPair(t, kubetest.NewCA(t))
	if _, err := p.save(cert, key, time.Unix(0, 0)); err != nil {
		t.Fatal(err)
	}
	for n := range 15 {
		child := exec.Command(os.Args[0], "-test.run=^TestSavePairsForEver$")
		child.Env = append(os.Environ(), childDir+"="+dir)
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Read(make([]byte, 1)); err != nil {
			t.Error(err)
		}
		sleep(t.Context(), time.Duration(n*7%23)*time.Millisecond)
		_ = child.Process.Kill()
		_ = child.Wait()
		if _, err := p.load(time.Now()); err != nil {
			t.Fatalf("no identity: %v", err)
		}
		if _, _, err := p.pendingKey(); err != nil {
			t.Fatal(err)
		}
	}
	cert, key = testPair(t, kubetest.NewCA(t))
	if _, err := p.save(cert, key, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) > keepPairs+1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

// TestLostLinkOrFile checks that the node uses the newest complete key pair if the disk has lost the symlink to it or the target of the
// symlink.
func TestLostLinkOrFile(t *testing.T) {
	p := pairFiles{dir: t.TempDir(), prefix: "kubelet-client"}
	if _, err := p.load(time.Now()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	ca := kubetest.NewCA(t)
	var newest string
	for n := range 3 {
		cert, key := testPair(t, ca)
		if _, err := p.save(cert, key, time.Unix(int64(n), 0).UTC()); err != nil {
			t.Fatal(err)
		}
		newest, _ = os.Readlink(p.currentPath())
	}
	if err := os.Remove(p.currentPath()); err != nil {
		t.Fatal(err)
	}
	if _, err := p.load(time.Now()); err != nil {
		t.Error(err)
	}
	if at, _ := os.Readlink(p.currentPath()); at != newest {
		t.Errorf("the link leads to %s", at)
	}
	if err := os.WriteFile(newest, []byte("torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := p.load(time.Now()); err != nil {
		t.Error(err)
	}
	if files, _ := p.listFiles(); len(files) != keepPairs {
		t.Errorf("kept: %v", files)
	}
	cert, _ := testPair(t, ca)
	_, key := testPair(t, ca)
	if _, err := p.save(cert, key, time.Now()); err == nil {
		t.Error("a certificate of another key is saved")
	}
}

// TestPreviousPair saves pairs while the clocks of the machine and of the signer are wrong. The previous pair must stay, and the node must
// find the newest pair again if the disk loses the link.
func TestPreviousPair(t *testing.T) {
	ca, start := kubetest.NewCA(t), time.Now().Add(-30*24*time.Hour)
	const day = 24 * time.Hour
	type step struct {
		clock, from, life time.Duration // of this machine, and of the certificate, since start
		back              bool          // the server then rejects the pair, and the node uses the one before
	}
	for name, c := range map[string]struct {
		steps      []step
		kept, best int // the previous pair, and the one that load finds; counted from 0
	}{
		"right clocks":               {[]step{{0, 0, 60 * day, false}, {day, day, 60 * day, false}, {2 * day, 2 * day, 60 * day, false}}, 1, 2},
		"the machine was ahead":      {[]step{{180 * day, 0, 60 * day, false}, {day, day, 60 * day, false}, {2 * day, 2 * day, 60 * day, false}}, 1, 2},
		"the machine is ahead":       {[]step{{0, 0, 60 * day, false}, {day, day, 60 * day, false}, {180 * day, 2 * day, 60 * day, false}}, 1, 2},
		"the machine is behind":      {[]step{{0, 0, 60 * day, false}, {day, day, 60 * day, false}, {-9000 * day, 2 * day, 60 * day, false}}, 1, 2},
		"the signer was ahead":       {[]step{{0, 0, 60 * day, false}, {day, 180 * day, 60 * day, true}, {2 * day, 2 * day, 60 * day, false}}, 0, 2},
		"the previous has expired":   {[]step{{0, 0, 60 * day, false}, {day, day, day, false}, {3 * day, 3 * day, 60 * day, false}}, 0, 2},
		"the newest expires earlier": {[]step{{0, 0, 60 * day, false}, {day, day, day, false}}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := pairFiles{dir: t.TempDir(), prefix: "kubelet-client"}
			var files []string
			for _, s := range c.steps {
				cert, key := ca.Client(t, "system:node:n", nil, start.Add(s.from), start.Add(s.from+s.life))
				if _, err := p.save(cert, key, start.Add(s.clock)); err != nil {
					t.Fatal(err)
				}
				file, err := os.Readlink(p.currentPath())
				if err != nil {
					t.Fatal(err)
				}
				files = append(files, file)
				if s.back {
					if err := p.link(files[len(files)-2]); err != nil {
						t.Fatal(err)
					}
				}
			}
			left, err := p.listFiles()
			if want := []string{files[c.kept], files[len(files)-1]}; err != nil || len(left) != 2 || !slices.Contains(left, want[0]) ||
				!slices.Contains(left, want[1]) {
				t.Errorf("kept %q, %v instead of %q", left, err, want)
			}
			if err := os.Remove(p.currentPath()); err != nil {
				t.Fatal(err)
			}
			if _, err := p.load(start.Add(10 * day)); err != nil {
				t.Error(err)
			}
			if now, err := os.Readlink(p.currentPath()); err != nil || now != files[c.best] {
				t.Errorf("the link leads to %s, %v instead of pair %d of %q", now, err, c.best, files)
			}
		})
	}
}

// TestRequestsEndNoWait checks the files that a denied signing request writes and removes. The node must not mistake these changes for
// those of another program. Otherwise it would repeat the request immediately.
func TestRequestsEndNoWait(t *testing.T) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	p := pairFiles{dir: t.TempDir(), prefix: "kubelet-client"}
	if err := w.Add(p.dir); err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.pendingKey(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(p.pendingPath()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.currentPath(), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	told := 0
	for e := range w.Events {
		if e.Name == p.currentPath() {
			break
		}
		told++
		if !isTemporary(e.Name) {
			t.Errorf("%s counts as a change", e)
		}
	}
	if told == 0 || isTemporary(p.currentPath()) {
		t.Errorf("%d events, of the current pair too: %v", told, isTemporary(p.currentPath()))
	}
}

// FuzzKubeconfig checks that the parser of kubeconfigs does not panic.
func FuzzKubeconfig(f *testing.F) {
	f.Add([]byte("apiVersion: v1\nkind: Config\ncurrent-context: x\ncontexts:\n- name: x\n  context: {cluster: c, user: u}\nclusters:\n- name: c\n  cluster: {server: 'https://127.0.0.1:1'}\nusers:\n- name: u\n  user: {token: t}\n"))
	f.Add([]byte("apiVersion: v1\nkind: Config\nclusters:\n- name: c\n"))
	f.Add([]byte("clusters: {}\nusers: [null]\ncontexts: [null]"))
	path := filepath.Join(f.TempDir(), "kubelet.conf")
	f.Fuzz(func(t *testing.T, text []byte) {
		cfg, user, err := parseKubeconfig(text, path)
		if err != nil {
			return
		}
		_, _ = leafOfUser(user)
		if out, err := restConfig(cfg); err == nil {
			_, _ = leafOf(out)
		}
	})
}

// FuzzPair checks that the parser of key pairs does not panic.
func FuzzPair(f *testing.F) {
	cert, key := testPair(f, kubetest.NewCA(f))
	f.Add(append(cert, key...))
	f.Add(key)
	f.Add(cert)
	f.Fuzz(func(t *testing.T, text []byte) {
		if p, err := parsePair(text); err == nil && p.cert.Leaf == nil {
			t.Error("a pair without its certificate")
		}
		_, _ = parseKey(text)
	})
}

// TestCertificateBombs checks that an issued certificate is rejected and not saved if it is too large when decoded.
func TestCertificateBombs(t *testing.T) {
	cert, key := testPair(t, kubetest.NewCA(t))
	p := pairFiles{dir: t.TempDir(), prefix: "kubelet-client"}
	for name, text := range map[string]string{
		"headers": "-----BEGIN CERTIFICATE-----\n" + strings.Repeat("abc:\n", 200_000) + "\n-----END CERTIFICATE-----\n",
		"chain":   strings.Repeat(string(cert), 5000),
	} {
		if _, err := p.save([]byte(text), key, time.Now()); !errors.Is(err, inputweight.ErrTooHeavy) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if left, err := os.ReadDir(p.dir); err != nil || len(left) > 0 {
		t.Errorf("%v is kept, %v", left, err)
	}
}
