package credentials

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
	configv1 "k8s.io/kubelet/config/v1"

	"github.com/islet-edge/islet/internal/keyring"
	"github.com/islet-edge/islet/internal/podtest"
)

// server is a fake API server that can be made unreachable.
type server struct {
	cut     bool
	account metav1.ObjectMeta
	asked   []string
}

func (s *server) PullSecrets(context.Context, *v1.Pod, string) ([]keyring.Credential, []string) {
	return []keyring.Credential{{Auth: &api.AuthConfig{Username: "secret"}, From: v1.ObjectReference{Kind: keyring.Secret, Name: "pull"}}}, []string{"gone"}
}

func (s *server) ServiceAccount(ctx context.Context, namespace, name string) (*metav1.ObjectMeta, error) {
	s.asked = append(s.asked, "account "+namespace+"/"+name)
	if s.cut {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.account.DeepCopy(), nil
}

func (s *server) AccountToken(_ context.Context, pod *v1.Pod, account types.UID, audience string) (string, time.Time, error) {
	s.asked = append(s.asked, fmt.Sprintf("token %s %s %s", pod.UID, account, audience))
	return fmt.Sprintf("token-%s-%d", pod.UID, len(s.asked)), time.Now().Add(time.Hour), nil
}

type memory map[string]string

func (m memory) Meta(_ context.Context, key string) (string, bool, error) {
	v, ok := m[key]
	return v, ok, nil
}

func (m memory) SetMetaOrRetry(_ context.Context, key, value string) error {
	m[key] = value
	return nil
}

func podOf(uid, account string) *v1.Pod {
	return podtest.New("p-"+uid, podtest.Namespace("team"), podtest.UID(uid), podtest.ServiceAccount(account))
}

func attributes(kind configv1.ServiceAccountTokenCacheType, require bool) *configv1.ServiceAccountTokenAttributes {
	return &configv1.ServiceAccountTokenAttributes{ServiceAccountTokenAudience: "acme", CacheType: kind, RequireServiceAccount: &require,
		OptionalServiceAccountAnnotationKeys: []string{"hint"}}
}

// TestOrder checks the whole lookup with real programs. The Secrets come first, then the node's files, then the plugins in their order. A
// failed plugin does not affect the others.
func TestOrder(t *testing.T) {
	root := t.TempDir()
	t.Setenv("HOME", t.TempDir())
	t.Chdir(t.TempDir())
	write(t, root, "config.json", `{"auths":{"a.example":{"username":"node","password":"pw"}}}`)
	bin := filepath.Join(root, "bin")
	must(t, os.Mkdir(bin, 0o755))
	var providers strings.Builder
	for name, script := range map[string]string{"first": "echo '" + answerOf("Image", "one") + "'", "broken": "exit 1", "second": "echo '" + answerOf("Image", "two") + "'", "other": "touch " + root + "/called"} {
		must(t, os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script), 0o755))
	}
	for _, p := range []string{"second a.example", "broken '*.example'", "first a.example/team", "other b.example"} {
		name, image, _ := strings.Cut(p, " ")
		fmt.Fprintf(&providers, "- {name: %s, matchImages: [%s], defaultCacheDuration: 1h, apiVersion: credentialprovider.kubelet.k8s.io/v1}\n",
			name, image)
	}
	file := write(t, root, "plugins.yaml", "kind: CredentialProviderConfig\napiVersion: kubelet.config.k8s.io/v1\nproviders:\n"+
		providers.String())
	c, err := Open(Config{Plugins: file, BinDir: bin, Root: root, API: &server{}, Secrets: &server{}, Meta: memory{}, Log: slog.New(slog.DiscardHandler)})
	must(t, err)
	defer c.Close()
	k := c.Keyring(t.Context(), podOf("1", "app"), "a.example/team/app:1")
	given, err := k.RunPlugins(t.Context())
	if err == nil || !strings.Contains(err.Error(), "credential provider broken: exit status 1") {
		t.Error(err)
	}
	var users []string
	for _, c := range append(k.Stored, given...) {
		users = append(users, c.Auth.Username+c.From.Kind)
	}
	if got := fmt.Sprint(users); got != "[secretSecret node two one]" || k.Account != nil || k.Scope != "" || len(k.MissingSecrets) != 1 {
		t.Error(got, k)
	}
	if _, err := os.Stat(filepath.Join(root, "called")); err == nil {
		t.Error("a plugin for other images was called")
	}
	if k := c.Keyring(t.Context(), podOf("1", "app"), "docker.io/library/nginx"); k.RunPlugins != nil || len(k.Stored) != 1 {
		t.Error(k)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c.Collectors()...)
	all, err := registry.Gather()
	must(t, err)
	var names []string
	for _, m := range all {
		names = append(names, m.GetName(), fmt.Sprint(len(m.GetMetric())))
	}
	if got := fmt.Sprint(names); got != "[kubelet_credential_provider_config_info 1 kubelet_credential_provider_plugin_duration 3 kubelet_credential_provider_plugin_errors_total 1]" {
		t.Error(got)
	}
	must(t, os.Remove(filepath.Join(bin, "other")))
	if _, err := Open(Config{Plugins: file, BinDir: bin, Root: root, Meta: memory{}, Log: slog.New(slog.DiscardHandler)}); err == nil || !strings.Contains(err.Error(), `the program of provider "other"`) {
		t.Error(err)
	}
}

// TestNodeConfiguration checks that the node's credentials are read again after nodeTTL. A file is read only if it is a regular file of at
// most maxConfigBytes.
func TestNodeConfiguration(t *testing.T) {
	root, home, here := t.TempDir(), t.TempDir(), t.TempDir()
	t.Setenv("HOME", home)
	t.Chdir(here)
	must(t, os.Mkdir(filepath.Join(home, ".docker"), 0o755))
	entry := func(user string) string { return `"a.example":{"username":"` + user + `","password":"pw"}` }
	synctest.Test(t, func(t *testing.T) {
		n := &node{root: root, log: slog.New(slog.DiscardHandler)}
		expect := func(want string) {
			t.Helper()
			time.Sleep(nodeTTL)
			var users []string
			for _, c := range n.lookup("a.example/app") {
				users = append(users, c.Auth.Username)
				if c.From.Kind != "" {
					t.Error(c.From)
				}
			}
			if got := strings.Join(users, " "); got != want {
				t.Errorf("%q, not %q", got, want)
			}
		}
		write(t, home, ".dockercfg", "{"+entry("old")+"}")
		expect("old")
		write(t, home, ".docker/config.json", `{"auths":{`+entry("home")+`}}`)
		expect("home")
		write(t, here, "config.json", `{"auths":{`+entry("here")+`}}`)
		expect("here")
		write(t, root, "config.json", `{"auths":{`+entry("root")+`}}`)
		if got := n.lookup("a.example/app"); got[0].Auth.Username != "here" {
			t.Error("the file was read before nodeTTL", got)
		}
		expect("root")
		write(t, root, "config.json", strings.Repeat(" ", maxConfigBytes)+`{"auths":{`+entry("root")+`}}`)
		expect("here")
		write(t, root, "config.json", "no JSON")
		expect("here")
		must(t, os.Remove(filepath.Join(root, "config.json")))
		must(t, os.Mkdir(filepath.Join(root, "config.json"), 0o755))
		expect("here")
		write(t, here, "config.json", `{"auths":{}}`)
		expect("") // the file is valid but has no credentials
	})
}

// TestIdentify checks the calls of a plugin that uses service account tokens. The annotations of the service account are part of the cache
// key. For a pod without a service account, the plugin is called only if the configuration allows it.
func TestIdentify(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{account: metav1.ObjectMeta{UID: "u1", Annotations: map[string]string{"hint": "h", "other": "o"}}}
		a := &accounts{api: s, meta: memory{}, down: func() bool { return false }}
		must(t, a.loadUIDs(t.Context()))
		perAccount, perToken := attributes(configv1.ServiceAccountServiceAccountTokenCacheType, true),
			attributes(configv1.TokenServiceAccountTokenCacheType, false)
		of := func(pod *v1.Pod, at *configv1.ServiceAccountTokenAttributes) *identity {
			t.Helper()
			who, err := a.identityFor(t.Context(), pod, at)
			must(t, err)
			return who
		}
		one, two := of(podOf("1", "app"), perAccount), of(podOf("2", "app"), perAccount)
		if one.key != two.key || fmt.Sprint(one.annotations) != "map[hint:h]" || one.from.UID != "u1" || one.from.Kind != keyring.ServiceAccount {
			t.Error(one, two)
		}
		if fmt.Sprint(s.asked) != "[account team/app]" {
			t.Error("a token was requested before it is needed", s.asked)
		}
		if of(podOf("1", "other"), perAccount).key == one.key {
			t.Error("two accounts share a key")
		}
		if x, y := of(podOf("1", "app"), perToken), of(podOf("2", "app"), perToken); x.key == y.key || x.key == one.key ||
			of(podOf("1", "app"), perToken).key != x.key {
			t.Error("keys by token", x.key, y.key)
		}
		before := len(s.asked)
		time.Sleep(55 * time.Minute)
		of(podOf("1", "app"), perToken)
		if !strings.HasPrefix(s.asked[len(s.asked)-1], "token 1 u1 acme") || len(s.asked) != before+2 {
			t.Error("an expiring token is used", s.asked[before:])
		}
		time.Sleep(accountTTL)
		s.account.Annotations["hint"] = "new"
		if of(podOf("1", "app"), perAccount).key == one.key {
			t.Error("an annotation changed, the key did not")
		}
		if who := of(podOf("1", ""), perToken); who.key != "" || who.token != nil || who.from.Kind != "" {
			t.Error(who)
		}
		if _, err := a.identityFor(t.Context(), podOf("1", ""), perAccount); !errors.Is(err, errNotApplicable) {
			t.Error(err)
		}
		perAccount.RequiredServiceAccountAnnotationKeys = []string{"role"}
		if _, err := a.identityFor(t.Context(), podOf("1", "app"), perAccount); !errors.Is(err, errNotApplicable) {
			t.Error(err)
		}
		a.api = nil
		if _, err := a.identityFor(t.Context(), podOf("1", "app"), perToken); err == nil || !strings.Contains(err.Error(), "stands alone") {
			t.Error(err)
		}
	})
}

// TestReferenceOffline checks that a node without a link can still identify the service account that pulled an image, even after a restart.
func TestReferenceOffline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, kept, down := &server{account: metav1.ObjectMeta{UID: "u1"}}, memory{}, false
		open := func() *accounts {
			a := &accounts{api: s, meta: kept, down: func() bool { return down }}
			must(t, a.loadUIDs(t.Context()))
			return a
		}
		expect := func(a *accounts, want types.UID, within time.Duration) {
			t.Helper()
			began := time.Now()
			ref, err := a.accountReference(t.Context(), podOf("1", "app"))
			if ref.UID != want || (err == nil) != (want != "") || time.Since(began) > within {
				t.Error(ref, err, time.Since(began))
			}
		}
		s.cut = true
		expect(open(), "", accountTimeout)
		s.cut = false
		expect(open(), "u1", 0)
		s.cut = true
		a := open()
		expect(a, "u1", accountTimeout)
		down = true
		expect(open(), "u1", 0)
		down, s.cut, s.account.UID = false, false, "u2" // the account was deleted and created again with another UID
		expect(a, "u2", 0)
		if kept[accountsKey] != `{"team/app":"u2"}` {
			t.Error(kept)
		}
		for i := range 2 * maxEntries {
			_, err := a.getAccount(t.Context(), "team", fmt.Sprint(i))
			must(t, err)
		}
		if len(a.uids) > maxEntries {
			t.Error(len(a.uids))
		}
	})
}
