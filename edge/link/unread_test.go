package link

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd/api"
)

// Each function in faults creates a file that cannot be read.
var faults = map[string]func(path string) error{
	"a directory":       func(path string) error { return os.Mkdir(path, 0o700) },
	"a disk that fails": func(path string) error { return os.Symlink("/proc/self/mem", path) }, // EIO
	"links in a circle": func(path string) error { return os.Symlink(path, path) },
}

// TestUnreadable checks that the node keeps its current credentials while their files or the directory of the certificates cannot be read.
// A node that starts in this state uses its key pair and the bootstrap kubeconfig. It creates no signing request. A node that has no usable
// credentials starts, reports the missing files, and connects when they can be read.
func TestUnreadable(t *testing.T) {
	for fault, put := range faults {
		for _, name := range []string{"kubeconfig", "pki/kubelet-client-current.pem", "pki"} {
			if name == "pki" && fault == "a directory" {
				continue // an empty directory means that the files were removed
			}
			for _, bootstrap := range []bool{true, false} {
				t.Run(name+" "+fault+map[bool]string{true: " bootstrap"}[bootstrap], func(t *testing.T) {
					t.Parallel()
					testUnreadable(t, name, bootstrap, put)
				})
			}
		}
	}
}

func testUnreadable(t *testing.T, name string, bootstrap bool, put func(string) error) {
	w := newWorld(t)
	cfg := w.bootstrap()
	l, stop := w.start(cfg)
	await(t, l, up)
	<-w.asked
	stop()
	path := w.path(name)
	if name == "kubeconfig" {
		path = cfg.Kubeconfig
	}
	if !bootstrap {
		cfg.BootstrapKubeconfig = ""
	}
	broken := func() {
		if err := os.Rename(path, path+".good"); err != nil {
			t.Fatal(err)
		}
		if err := put(path); err != nil {
			t.Fatal(err)
		}
	}
	mended := func() {
		for {
			err := os.RemoveAll(path)
			if err == nil {
				err = os.Rename(path+".good", path)
			}
			if err == nil {
				return
			}
			if !errors.Is(err, fs.ErrExist) { // the agent may create the directory after RemoveAll
				t.Fatal(err)
			}
		}
	}
	l, stop = w.start(cfg)
	await(t, l, up)
	broken()
	if !l.identity.load() {
		t.Errorf("while it runs the credentials are lost: %+v", l.identity.missingReason)
	}
	stop()
	l, stop = w.start(cfg)
	switch {
	case name == "pki", name == "kubeconfig" && !bootstrap: // the node has no credentials
		await(t, l, func(s State) bool { return s.Phase == Down && s.Message != "" })
		mended()
		await(t, l, up)
	default:
		await(t, l, up)
	}
	stop()
	if name != "pki" && len(w.asked) != 0 {
		t.Error("another certificate was requested")
	}
}

// TestUnreadableGiven checks that the node continues to use its kubeconfig while the certificate files of the kubeconfig cannot be read.
func TestUnreadableGiven(t *testing.T) {
	for fault, put := range faults {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			cfg := w.config()
			cert, key := w.server.CA.Client(t, "system:node:n", []string{"system:nodes"}, time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour))
			files := [2]string{filepath.Join(w.dir, "client.crt"), filepath.Join(w.dir, "client.key")}
			for i, text := range [][]byte{cert, key} {
				if err := os.WriteFile(files[i], text, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			w.kubeconfig(cfg.Kubeconfig, &api.AuthInfo{ClientCertificate: files[0], ClientKey: files[1]})
			l, _ := w.start(cfg)
			await(t, l, up)
			if err := os.Remove(files[1]); err != nil {
				t.Fatal(err)
			}
			if err := put(files[1]); err != nil {
				t.Fatal(err)
			}
			if !l.identity.load() {
				t.Errorf("the credentials are lost: %+v", l.identity.missingReason)
			}
		})
	}
}
