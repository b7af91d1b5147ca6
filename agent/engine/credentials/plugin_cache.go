package credentials

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
	configv1 "k8s.io/kubelet/config/v1"
	credentialv1 "k8s.io/kubelet/pkg/apis/credentialprovider/v1"

	"github.com/islet-edge/islet/internal/keyring"
)

const (
	maxCalls    = 4       // parallel calls of one plugin
	cacheBytes  = 4 << 20 // maximum size of one plugin's cached responses
	globalPlace = "<global>"
)

// A provider calls one plugin, and caches its responses while they are valid.
type provider struct {
	name        string
	images      []string // patterns
	duration    time.Duration
	token       *configv1.ServiceAccountTokenAttributes // nil if the plugin gets no token
	callProgram func(context.Context, credentialv1.CredentialProviderRequest) (*credentialv1.CredentialProviderResponse, error)
	ctx         context.Context // ends with the agent, not with a caller, because several callers may wait for the same call
	slots       chan struct{}   // one per running call
	counts      *pluginMetrics

	mu      sync.Mutex
	pending map[cacheKey]*pendingCall
	cache   map[cacheKey]*cacheEntry
	bytes   int
}

// A cacheKey identifies a response, by the image, registry or globalPlace, and by the identity's key.
type cacheKey struct{ place, identity string }

type cacheEntry struct {
	auth    map[string]credentialv1.AuthConfig
	expires time.Time
	size    int
}

type pendingCall struct {
	done chan struct{}
	auth map[string]credentialv1.AuthConfig // valid when done is closed
	err  error
}

// appliesTo reports whether the plugin applies to an image, given its full name without tag and
// digest.
func (p *provider) appliesTo(image string) bool {
	return slices.ContainsFunc(p.images, func(m string) bool { return keyring.Matches(m, image) })
}

// obtainCredentials adds the plugin's credentials for an image to a keyring, from the cache if possible.
// Concurrent identical calls share one run of the program.
func (p *provider) obtainCredentials(ctx context.Context, image string, who *identity, to *keyring.Ring) error {
	registry, _, _ := strings.Cut(image, "/")
	p.mu.Lock()
	for _, place := range []string{image, registry, globalPlace} {
		if a := p.cache[cacheKey{place, who.key}]; a != nil && time.Now().Before(a.expires) {
			p.mu.Unlock()
			addCredentials(to, a.auth, who.from)
			return nil
		}
	}
	q := cacheKey{image, who.key}
	f := p.pending[q]
	if f == nil {
		f = &pendingCall{done: make(chan struct{})}
		p.pending[q] = f
		go p.callAndCache(f, q, image, registry, who)
	}
	p.mu.Unlock()
	select {
	case <-f.done:
		addCredentials(to, f.auth, who.from)
		return f.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func addCredentials(to *keyring.Ring, all map[string]credentialv1.AuthConfig, from v1.ObjectReference) {
	for place, a := range all {
		to.Add(place, keyring.Credential{Auth: &api.AuthConfig{Username: a.Username, Password: a.Password}, From: from})
	}
}

// callAndCache runs the plugin and caches its response. It converts a panic into an error, because it runs in its own
// goroutine, where no caller could recover the panic.
func (p *provider) callAndCache(f *pendingCall, q cacheKey, image, registry string, who *identity) {
	defer close(f.done)
	defer func() {
		if v := recover(); v != nil {
			f.auth, f.err = nil, fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		}
		p.mu.Lock()
		delete(p.pending, q)
		p.mu.Unlock()
	}()
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-p.ctx.Done():
		f.err = p.ctx.Err()
		return
	}
	r := credentialv1.CredentialProviderRequest{Image: image}
	if p.token != nil && who.token != nil {
		var err error
		if r.ServiceAccountToken, err = who.token(p.ctx); err != nil {
			f.err = err
			return
		}
		r.ServiceAccountAnnotations = who.annotations
	}
	began := time.Now()
	got, err := p.callProgram(p.ctx, r)
	p.counts.observeCall(p.name, time.Since(began), err)
	if err == nil {
		err = p.checkEcho(r.ServiceAccountToken, got)
	}
	if err != nil {
		f.err = err
		return
	}
	f.auth = got.Auth
	key := q
	switch got.CacheKeyType {
	case credentialv1.RegistryPluginCacheKeyType:
		key.place = registry
	case credentialv1.GlobalPluginCacheKeyType:
		key.place = globalPlace
	}
	keep := p.duration
	if got.CacheDuration != nil {
		keep = got.CacheDuration.Duration
	}
	p.cacheResponse(key, got.Auth, keep)
}

// checkEcho rejects a response that contains the plugin's token as the password, unless the cache key contains the
// token.
func (p *provider) checkEcho(token string, got *credentialv1.CredentialProviderResponse) error {
	if token == "" || p.token.CacheType == configv1.TokenServiceAccountTokenCacheType {
		return nil
	}
	for _, a := range got.Auth {
		if a.Password == token {
			return errors.New("it returned the service account token as the password, which needs cacheType: Token in its tokenAttributes")
		}
	}
	return nil
}

// cacheResponse caches a response. It evicts expired responses first, and then those that expire earliest, until the cache
// contains at most cacheBytes.
func (p *provider) cacheResponse(q cacheKey, auth map[string]credentialv1.AuthConfig, keep time.Duration) {
	if keep <= 0 {
		return
	}
	a := &cacheEntry{auth: auth, expires: time.Now().Add(min(keep, math.MaxInt64/4)), size: len(q.place) + len(q.identity)}
	for place, c := range auth {
		a.size += len(place) + len(c.Username) + len(c.Password)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.evict(q)
	p.cache[q], p.bytes = a, p.bytes+a.size
	for q, a := range p.cache {
		if !time.Now().Before(a.expires) {
			p.evict(q)
		}
	}
	for p.bytes > cacheBytes {
		var first cacheKey
		for q, a := range p.cache {
			if f := p.cache[first]; f == nil || a.expires.Before(f.expires) {
				first = q
			}
		}
		p.evict(first)
	}
}

func (p *provider) evict(q cacheKey) {
	if a := p.cache[q]; a != nil {
		p.bytes -= a.size
		delete(p.cache, q)
	}
}
