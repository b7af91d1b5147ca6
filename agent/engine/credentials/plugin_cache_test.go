package credentials

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	configv1 "k8s.io/kubelet/config/v1"
	credentialv1 "k8s.io/kubelet/pkg/apis/credentialprovider/v1"

	"github.com/islet-edge/islet/internal/keyring"
)

// A fakePlugin records its requests.
type fakePlugin struct {
	mu    sync.Mutex
	of    []string
	reply func(n int, r credentialv1.CredentialProviderRequest) (*credentialv1.CredentialProviderResponse, error)
}

func (a *fakePlugin) ask(_ context.Context, r credentialv1.CredentialProviderRequest) (*credentialv1.CredentialProviderResponse, error) {
	a.mu.Lock()
	a.of = append(a.of, r.Image)
	n := len(a.of)
	a.mu.Unlock()
	return a.reply(n, r)
}

func (a *fakePlugin) times() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.of)
}

func (a *fakePlugin) provider(t *testing.T, keep time.Duration) *provider {
	p := configv1.CredentialProvider{Name: "acme", MatchImages: []string{"*.example"}, DefaultCacheDuration: &metav1.Duration{Duration: keep}}
	made := newProvider(t.Context(), &p, plugin{}, newPluginMetrics("sha256:0"))
	made.callProgram = a.ask
	return made
}

func reply(key credentialv1.PluginCacheKeyType, keep *metav1.Duration, user string) *credentialv1.CredentialProviderResponse {
	return &credentialv1.CredentialProviderResponse{CacheKeyType: key, CacheDuration: keep, Auth: map[string]credentialv1.AuthConfig{"*.example": {Username: user, Password: "pw"}}}
}

func usersOf(t *testing.T, p *provider, image string, who *identity) string {
	t.Helper()
	var ring keyring.Ring
	if err := p.obtainCredentials(t.Context(), image, who, &ring); err != nil {
		return "error: " + err.Error()
	}
	var users []string
	for _, c := range ring.Lookup(image) {
		users = append(users, c.Auth.Username)
	}
	return strings.Join(users, " ")
}

// TestCache checks that a response is cached for an image, for a registry or globally, as the plugin requests. A response expires after its
// duration, and is not used for another identity.
func TestCache(t *testing.T) {
	seconds := func(n time.Duration) *metav1.Duration { return &metav1.Duration{Duration: n * time.Second} }
	for _, tt := range []struct {
		key                               credentialv1.PluginCacheKeyType
		keep                              *metav1.Duration
		image, registry, elsewhere, later bool // true: the plugin is called again
	}{
		{credentialv1.ImagePluginCacheKeyType, nil, false, true, true, true},
		{credentialv1.RegistryPluginCacheKeyType, nil, false, false, true, true},
		{credentialv1.GlobalPluginCacheKeyType, nil, false, false, false, true},
		{credentialv1.GlobalPluginCacheKeyType, seconds(1000), false, false, false, false},
		{credentialv1.GlobalPluginCacheKeyType, seconds(1 << 33), false, false, false, false},
		{credentialv1.GlobalPluginCacheKeyType, seconds(0), true, true, true, true},
		{credentialv1.GlobalPluginCacheKeyType, seconds(-5), true, true, true, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			for _, again := range []struct {
				image string
				who   string
				after time.Duration
				want  bool
			}{
				{"a.example/app", "", 0, tt.image}, {"a.example/other", "", 0, tt.registry}, {"b.example/app", "", 0, tt.elsewhere},
				{"a.example/app", "", 100 * time.Second, tt.later}, {"a.example/app", "somebody", 0, true},
			} {
				a := &fakePlugin{reply: func(int, credentialv1.CredentialProviderRequest) (*credentialv1.CredentialProviderResponse, error) {
					return reply(tt.key, tt.keep, "ann"), nil
				}}
				p := a.provider(t, time.Minute)
				usersOf(t, p, "a.example/app", &identity{})
				time.Sleep(again.after)
				if got := usersOf(t, p, again.image, &identity{key: again.who}); got != "ann" || (a.times() == 2) != again.want {
					t.Errorf("%s %v: %+v: %q, %d calls", tt.key, tt.keep, again, got, a.times())
				}
			}
		})
	}
}

// TestFlights checks that twenty pods with the same image share one call of the plugin. The number of parallel calls is limited. A caller
// that times out does not affect the other callers.
func TestFlights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var going, most int
		var mu sync.Mutex
		a := &fakePlugin{}
		a.reply = func(_ int, r credentialv1.CredentialProviderRequest) (*credentialv1.CredentialProviderResponse, error) {
			mu.Lock()
			going++
			most = max(most, going)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			going--
			mu.Unlock()
			return reply(credentialv1.ImagePluginCacheKeyType, nil, r.Image), nil
		}
		p := a.provider(t, 0)
		soon, stop := context.WithTimeout(t.Context(), time.Millisecond)
		defer stop()
		var all sync.WaitGroup
		all.Go(func() {
			if err := p.obtainCredentials(soon, "a.example/0", &identity{}, &keyring.Ring{}); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		})
		synctest.Wait()
		for i := range 200 {
			image := fmt.Sprint("a.example/", i%10)
			all.Go(func() {
				if got := usersOf(t, p, image, &identity{}); got != image {
					t.Error(image, got)
				}
			})
		}
		all.Wait()
		if a.times() != 10 || most != maxCalls || len(p.pending) != 0 {
			t.Error(a.times(), most, len(p.pending))
		}
	})
}

// TestFailedCall checks that the next lookup calls a plugin again after the plugin failed or panicked.
func TestFailedCall(t *testing.T) {
	a := &fakePlugin{reply: func(n int, _ credentialv1.CredentialProviderRequest) (*credentialv1.CredentialProviderResponse, error) {
		switch n {
		case 1:
			return nil, errors.New("no role")
		case 2:
			panic("oops")
		}
		return reply(credentialv1.GlobalPluginCacheKeyType, nil, "ann"), nil
	}}
	p := a.provider(t, time.Minute)
	for i, want := range []string{"error: no role", "error: panic: oops", "ann", "ann"} {
		if got := usersOf(t, p, "a.example/app", &identity{}); !strings.HasPrefix(got, want) {
			t.Errorf("call %d: %s", i, got)
		}
	}
	if a.times() != 3 {
		t.Error(a.times())
	}
}

// TestCacheIsBounded checks that the cache has a size limit. The responses that expire first are evicted first.
func TestCacheIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakePlugin{reply: func(n int, r credentialv1.CredentialProviderRequest) (*credentialv1.CredentialProviderResponse, error) {
			out := reply(credentialv1.ImagePluginCacheKeyType, &metav1.Duration{Duration: time.Duration(n) * time.Hour}, r.Image)
			out.Auth["*.example"] = credentialv1.AuthConfig{Username: r.Image, Password: strings.Repeat("p", 200<<10)}
			return out, nil
		}}
		p := a.provider(t, 0)
		for i := range 50 {
			usersOf(t, p, fmt.Sprint("a.example/", i), &identity{})
			sum := 0
			for _, a := range p.cache {
				sum += a.size
			}
			if p.bytes > cacheBytes || sum != p.bytes {
				t.Fatal(p.bytes, sum)
			}
		}
		usersOf(t, p, "a.example/49", &identity{})
		usersOf(t, p, "a.example/0", &identity{})
		if a.times() != 51 || !slices.Contains(a.of[50:], "a.example/0") {
			t.Error(a.of)
		}
		time.Sleep(100 * time.Hour)
		usersOf(t, p, "a.example/1", &identity{})
		if len(p.cache) != 1 {
			t.Error("expired responses are kept:", len(p.cache))
		}
	})
}

// TestEchoedToken checks that a response is not cached for other pods if its password is the pod's service account token.
func TestEchoedToken(t *testing.T) {
	who := func() *identity {
		return &identity{key: "sa", from: v1.ObjectReference{Kind: keyring.ServiceAccount, Name: "app"}, token: func(context.Context) (string, error) { return "pw", nil }}
	}
	for kind, want := range map[configv1.ServiceAccountTokenCacheType]string{
		configv1.TokenServiceAccountTokenCacheType:          "ann",
		configv1.ServiceAccountServiceAccountTokenCacheType: "error: it returned the service account token",
	} {
		a := &fakePlugin{reply: func(_ int, r credentialv1.CredentialProviderRequest) (*credentialv1.CredentialProviderResponse, error) {
			if r.ServiceAccountToken != "pw" {
				t.Error(r)
			}
			return reply(credentialv1.ImagePluginCacheKeyType, nil, "ann"), nil
		}}
		p := a.provider(t, time.Minute)
		p.token = &configv1.ServiceAccountTokenAttributes{CacheType: kind}
		if got := usersOf(t, p, "a.example/app", who()); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s", kind, got)
		}
	}
}
