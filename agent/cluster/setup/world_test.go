package setup

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/eventtest"
	"github.com/islet-edge/islet/runtime/mounts/mountstest"
)

func TestMain(m *testing.M) {
	if os.Getenv(cutVariable) != "" {
		applyUntilCut()
	}
	os.Exit(mountstest.MainIfRoot(func() int { return eventtest.Main(m, "setup") }))
}

func must(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

const (
	token    = "abcdef.0123456789abcdef"
	newToken = "fedcba.0123456789abcdef"
	head     = "apiVersion: islet.dev/v1alpha1\nkind: BoardSetup\n"
)

// A clusterCA is a CA with which a test signs the certificates of a cluster.
type clusterCA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  string
	hash string
}

func newCA(t testing.TB) clusterCA {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	form := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kubernetes"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	raw, err := x509.CreateCertificate(rand.Reader, form, form, &key.PublicKey, key)
	must(t, err)
	cert, err := x509.ParseCertificate(raw)
	must(t, err)
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})
	return clusterCA{cert, key, string(text), fmt.Sprintf("sha256:%x", sha256.Sum256(cert.RawSubjectPublicKeyInfo))}
}

// issue returns a certificate and its key in PEM.
func (c clusterCA) issue(t testing.TB, name string) (cert, key string) {
	t.Helper()
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	form := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name, Organization: []string{"system:nodes"}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"localhost"}, IPAddresses: []net.IP{{127, 0, 0, 1}}}
	raw, err := x509.CreateCertificate(rand.Reader, form, c.cert, &own.PublicKey, c.key)
	must(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(own)
	must(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

func (c clusterCA) pair(t testing.TB, name string) tls.Certificate {
	t.Helper()
	cert, key := c.issue(t, name)
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	must(t, err)
	return pair
}

// block returns a text as a YAML block.
func block(text string) string {
	return "|\n    " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n    ") + "\n"
}

// joining is an islet.yaml with a token.
func joining(ca clusterCA) string {
	return head + "name: kiosk-{serial}\ncluster:\n  server: https://192.0.2.1:6443\n  ca: " + block(ca.pem) + "  token: " + token +
		" # expires\nnetwork:\n  clusterDNS: [10.96.0.10]\n"
}

// certified is an islet.yaml with a client certificate.
func certified(server string, ca clusterCA, cert, key string) string {
	return head + "cluster:\n  server: " + server + "\n  ca: " + block(ca.pem) + "  certificate: " + block(cert) + "  key: " + block(key)
}

// A board is a machine with a boot partition.
type board struct {
	*Setup
	t       testing.TB
	boot    string
	serials []string
	cards   []string
}

func newBoard(t testing.TB) *board {
	t.Helper()
	dir := t.TempDir()
	b := &board{t: t, boot: filepath.Join(dir, "boot"), serials: []string{"10000000ABCDEF01"}, cards: []string{"dc:a6:32:00:00:01"}}
	must(t, os.Mkdir(b.boot, 0o755))
	b.Setup = b.in(dir)
	b.Marks = func() (serials, cards []string) { return b.serials, b.cards }
	return b
}

func (b *board) in(dir string) *Setup {
	etc := filepath.Join(dir, "etc")
	load := func(args []string) (*config.Config, []config.Notice, error) {
		return config.Load(append([]string{"--hostname-override=node", "--config=" + etc + "/kubelet.yaml"}, args...))
	}
	return &Setup{State: filepath.Join(dir, "state"), Dir: etc, Now: time.Now, Step: func() {}, Up: func() time.Duration { return 0 },
		Host: machine(""), Load: load,
		Marks: func() (serials, cards []string) { return []string{"10000000ABCDEF01"}, nil }}
}

// machine returns the root directory of a machine with cgroup v2, and with a swap device unless its name is empty.
func machine(swap string) fs.FS {
	files := fstest.MapFS{"sys/fs/cgroup/cgroup.controllers": {}}
	if swap != "" {
		files["proc/swaps"] = &fstest.MapFile{Data: []byte("Filename Type Size Used Priority\n" + swap + " partition 524284 0 100\n")}
	}
	return files
}

func (b *board) file() string { return filepath.Join(b.boot, "islet.yaml") }

func (b *board) write(text string) {
	b.t.Helper()
	must(b.t, os.WriteFile(b.file(), []byte(text), 0o755))
}

// mountBoot mounts a file system of its own as the boot partition.
func (b *board) mountBoot() {
	b.t.Helper()
	if os.Geteuid() != 0 {
		b.t.Skip("mounts need root")
	}
	must(b.t, unix.Mount("none", b.boot, "tmpfs", 0, ""))
	b.t.Cleanup(func() { must(b.t, unix.Unmount(b.boot, unix.MNT_DETACH)) })
}

// setReadOnly sets whether the boot partition, after mountBoot, takes no writes.
func (b *board) setReadOnly(is bool) error {
	flags := uintptr(unix.MS_REMOUNT)
	if is {
		flags |= unix.MS_RDONLY
	}
	return unix.Mount("none", b.boot, "", flags, "")
}

// apply applies the file of the boot partition.
func (b *board) apply() (Result, error) { return b.Apply(b.file()) }

// inUse applies the file of the boot partition, which must succeed.
func (b *board) inUse() Result {
	b.t.Helper()
	out, err := b.apply()
	must(b.t, err)
	return out
}

// made returns a file of the configuration, or "" if there is none.
func (b *board) made(name string) string {
	b.t.Helper()
	text, err := os.ReadFile(filepath.Join(b.Dir, name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		b.t.Fatal(err)
	}
	return string(text)
}

// join does what the agent does when it has its certificate.
func (b *board) join(ca clusterCA, server, name string) {
	b.t.Helper()
	cert, key := ca.issue(b.t, "system:node:"+name)
	pair := filepath.Join(filepath.Dir(b.boot), "pair.pem")
	user := "    client-certificate: " + pair + "\n    client-key: " + pair
	must(b.t, os.MkdirAll(b.Dir, 0o755), os.WriteFile(pair, []byte(cert+key), 0o600),
		os.WriteFile(filepath.Join(b.Dir, kubeconfigFile), kubeconfig(server, ca.pem, user), 0o600))
}

// refused returns the mistakes of a file that is not in use.
func (b *board) refused() string {
	b.t.Helper()
	_, err := b.apply()
	if !errors.As(err, new(*RefusedError)) {
		b.t.Fatalf("the file was not refused: %v", err)
	}
	r, loadErr := load(b.State)
	must(b.t, loadErr)
	if r.Refused == nil || r.Refused.Why != shorten(err.Error()) {
		b.t.Errorf("the record has %+v, want %v", r.Refused, err)
	}
	return err.Error()
}

// cutVariable is the environment variable with the step at which the process kills itself, and with the directory of the board.
const cutVariable = "ISLET_TEST_CUT"

// applyUntilCut applies the islet.yaml of the board in cutVariable, and kills the process at the step in cutVariable.
func applyUntilCut() {
	var step, at int
	var dir string
	if _, err := fmt.Sscanf(os.Getenv(cutVariable), "%d %s", &at, &dir); err != nil {
		panic(err)
	}
	s := (&board{}).in(dir)
	s.Step = func() {
		if step++; step == at {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	}
	if _, err := s.Apply(filepath.Join(dir, "boot/islet.yaml")); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

// contents returns all files of the configuration.
func contents(t testing.TB, dir string) string {
	t.Helper()
	var b bytes.Buffer
	list, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for _, e := range list {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		must(t, err)
		info, err := e.Info()
		must(t, err)
		fmt.Fprintf(&b, "%s %v\n%s\n", e.Name(), info.Mode(), text)
	}
	return b.String()
}
