package worker

import (
	"bytes"
	"context"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/engine/pulls"
	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/event"
	"github.com/islet-edge/islet/internal/keyring"
	"github.com/islet-edge/islet/runtime/daemon"
	"github.com/islet-edge/islet/runtime/image"
)

// privateRegistry starts a registry with the image app:1, and returns its host and the number of requests for the manifest. The image is
// private to the user ann with the password "right".
func privateRegistry(t *testing.T) (host string, asked *atomic.Int64) {
	t.Helper()
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	img, err := random.Image(512, 1)
	check(t, err)
	layers, err := img.Layers()
	check(t, err)
	sum, err := layers[0].Digest()
	check(t, err)
	body, err := layers[0].Compressed()
	check(t, err)
	layer, err := io.ReadAll(body)
	check(t, err)
	put(t, inner, http.MethodPost, "/v2/app/blobs/uploads/?digest="+sum.String(), "application/octet-stream", layer)
	id, err := img.ConfigName()
	check(t, err)
	config, err := img.RawConfigFile()
	check(t, err)
	put(t, inner, http.MethodPost, "/v2/app/blobs/uploads/?digest="+id.String(), "application/octet-stream", config)
	kind, err := img.MediaType()
	check(t, err)
	manifest, err := img.RawManifest()
	check(t, err)
	put(t, inner, http.MethodPut, "/v2/app/manifests/1", string(kind), manifest)

	asked = new(atomic.Int64)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		if strings.Contains(r.URL.Path, "/manifests/") && user != "" {
			asked.Add(1)
		}
		if user != "ann" || password != "right" {
			w.Header().Set("WWW-Authenticate", `Basic realm="private"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://"), asked
}

func put(t *testing.T, h http.Handler, method, path, kind string, body []byte) {
	t.Helper()
	r := httptest.NewRequest(method, path, bytes.NewReader(body))
	r.Header.Set("Content-Type", kind)
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Code != http.StatusCreated {
		t.Fatal(method, path, w.Code, w.Body)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// This keyring has a Secret with the user ann for each namespace. The value is the password.
type passwords map[string]string

func (p passwords) Keyring(_ context.Context, pod *v1.Pod, _ string) (k keyring.Credentials) {
	if ns := pod.Namespace; p[ns] != "" {
		from := v1.ObjectReference{Kind: keyring.Secret, Namespace: ns, Name: "pull", UID: types.UID("uid-" + ns)}
		k.Stored = []keyring.Credential{{Auth: &api.AuthConfig{Username: "ann", Password: p[ns]}, From: from}}
	}
	return k
}

// newImageService returns the image service of a node. It connects to the registry at host with HTTP.
func newImageService(t *testing.T, host string, removed func()) *image.Service {
	t.Helper()
	root, certs := t.TempDir(), t.TempDir()
	check(t, unix.Mount("tmpfs", root, "tmpfs", 0, "size=1g"))
	t.Cleanup(func() { check(t, unix.Unmount(root, unix.MNT_DETACH)) })
	check(t, os.Mkdir(filepath.Join(certs, host), 0o755))
	check(t, os.WriteFile(filepath.Join(certs, host, "hosts.toml"), []byte("server = \"http://"+host+"\"\n"), 0o644))
	quiet := slog.New(slog.DiscardHandler)
	d, err := daemon.Start(t.Context(), daemon.Config{Root: root, Log: quiet})
	check(t, err)
	t.Cleanup(func() { d.Close() })
	s, err := image.New(image.Config{Client: d.Client(), Root: root, Snapshotter: d.Snapshotter(), CertsDir: certs, OnRemove: removed, Log: quiet})
	check(t, err)
	return s
}

// TestPrivateImageOfARegistry checks two namespaces that use the same private image. The first one has pulled it. The second one does not
// get it, because its Secret has a wrong password.
func TestPrivateImageOfARegistry(t *testing.T) {
	host, asked := privateRegistry(t)
	name := host + "/app:1"
	var guard *pulls.Verifier
	var records *store.Store
	service := newImageService(t, host, func() { guard.PruneRecords(t.Context()) })
	guard, records = newVerifier(t, filepath.Join(t.TempDir(), "islet.db"), service)
	defer records.Close()
	secrets := passwords{"right": "right", "same": "right", "wrong": "guess"}
	m := newImages(ExecutorConfig{Images: service, Keyring: secrets, Verifier: guard, Events: event.Discard{}, Log: slog.New(slog.DiscardHandler)})
	try := func(namespace string, policy v1.PullPolicy) error {
		p := &v1.Pod{}
		p.Name, p.Namespace, p.UID = "p", namespace, types.UID(namespace)
		got, _, err := m.ensureImage(t.Context(), p, &v1.Container{Name: "c", Image: name, ImagePullPolicy: policy})
		if err == nil && got == nil {
			t.Errorf("namespace %s has no image and no error", namespace)
		}
		return err
	}
	check(t, try("right", v1.PullIfNotPresent))
	pulled := asked.Load()
	check(t, try("right", v1.PullIfNotPresent))
	check(t, try("same", v1.PullNever))
	if asked.Load() != pulled {
		t.Error("the registry was called although the records suffice")
	}
	for _, policy := range []v1.PullPolicy{v1.PullIfNotPresent, v1.PullNever, v1.PullAlways} {
		for _, namespace := range []string{"wrong", "none"} {
			if try(namespace, policy) == nil {
				t.Errorf("%s got the image by %s", namespace, policy)
			}
		}
	}
	if asked.Load() == pulled {
		t.Error("the registry was not called")
	}
	secrets["wrong"] = "right" // the Secret is correct now, and the registry decides
	check(t, try("wrong", v1.PullIfNotPresent))
	check(t, try("wrong", v1.PullNever))

	_, err := service.RemoveImage(t.Context(), &api.RemoveImageRequest{Image: &api.ImageSpec{Image: name}})
	check(t, err)
	if ids, err := records.PulledImages(t.Context()); err != nil || len(ids) > 0 {
		t.Error(ids, err)
	}
}

// This keyring contains the credentials of each pod.
type rings map[types.UID]keyring.Credentials

func (r rings) Keyring(_ context.Context, pod *v1.Pod, _ string) keyring.Credentials {
	return r[pod.UID]
}

// TestSecretsAndPluginOfARegistry checks that the first Secret that the registry accepts is recorded for the image. A plugin is called only
// after the Secrets. Its pull is recorded for the service account.
func TestSecretsAndPluginOfARegistry(t *testing.T) {
	host, _ := privateRegistry(t)
	name := host + "/app:1"
	service := newImageService(t, host, func() {})
	guard, records := newVerifier(t, filepath.Join(t.TempDir(), "islet.db"), service)
	defer records.Close()
	cred := func(kind, from, password string) keyring.Credential {
		return keyring.Credential{Auth: &api.AuthConfig{Username: "ann", Password: password}, From: v1.ObjectReference{Kind: kind, Namespace: "team", Name: from, UID: types.UID("uid-" + from)}}
	}
	account := func(name string, given ...keyring.Credential) keyring.Credentials {
		return keyring.Credentials{
			Stored: []keyring.Credential{cred(keyring.Secret, "stale", "old")}, Scope: "team/" + name,
			RunPlugins: func(context.Context) ([]keyring.Credential, error) { return given, nil },
			Account: func(context.Context) (v1.ObjectReference, error) {
				return cred(keyring.ServiceAccount, name, "").From, nil
			},
		}
	}
	keys := rings{
		"two":    {Stored: []keyring.Credential{cred(keyring.Secret, "bad", "wrong"), cred(keyring.Secret, "good", "right"), cred(keyring.Secret, "unused", "right")}},
		"bad":    {Stored: []keyring.Credential{cred(keyring.Secret, "bad", "wrong")}},
		"plugin": account("app", cred(keyring.ServiceAccount, "app", "wrong"), cred(keyring.ServiceAccount, "app", "right")),
		"same":   account("app"),
		"other":  account("other", cred(keyring.ServiceAccount, "other", "wrong")),
	}
	m := newImages(ExecutorConfig{Images: service, Keyring: keys, Verifier: guard, Events: event.Discard{}, Log: slog.New(slog.DiscardHandler)})
	for _, tt := range []struct {
		pod    types.UID
		policy v1.PullPolicy
		ok     bool
		by     int // number of recorded sources after the pull
	}{
		{"bad", v1.PullIfNotPresent, false, 0},
		{"two", v1.PullIfNotPresent, true, 1},
		{"two", v1.PullNever, true, 1},
		{"bad", v1.PullIfNotPresent, false, 1},
		{"same", v1.PullNever, false, 1},
		{"plugin", v1.PullIfNotPresent, true, 2},
		{"same", v1.PullNever, true, 2},
		{"other", v1.PullIfNotPresent, false, 2},
		{"plugin", v1.PullAlways, true, 2},
	} {
		p := &v1.Pod{}
		p.Name, p.Namespace, p.UID = "p", "team", tt.pod
		got, _, err := m.ensureImage(t.Context(), p, &v1.Container{Name: "c", Image: name, ImagePullPolicy: tt.policy})
		var by []store.Pull
		if here, _ := m.localImage(t.Context(), name); here != nil {
			by, _ = records.PullsOf(t.Context(), here.Id)
		}
		if (err == nil) != tt.ok || (got != nil) != tt.ok || len(by) != tt.by {
			t.Errorf("%s by %s: %v, by %v", tt.pod, tt.policy, err, by)
		}
	}
}
