package credentials

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	configv1 "k8s.io/kubelet/config/v1"

	"github.com/islet-edge/islet/internal/keyring"
)

const (
	accountTTL     = time.Minute      // time for which a service account is cached
	accountTimeout = 2 * time.Second  // time to wait for the API server before the last known UID is used
	tokenMargin    = 10 * time.Minute // a token that expires earlier is not used
	maxEntries     = 256              // maximum number of accounts, and of tokens
	accountsKey    = "credentials.accounts"
)

// An identity is the service account, or the node, for which a plugin is called.
type identity struct {
	key         string // part of the cache key
	from        v1.ObjectReference
	annotations map[string]string
	token       func(context.Context) (string, error) // nil if the plugin gets no token
}

// errNotApplicable means that a plugin is not called for a pod.
var errNotApplicable = errors.New("the plugin does not apply to this pod")

// accounts caches the service accounts of pods and their tokens. It also stores the UIDs persistently, because they
// are needed to verify pull records after a restart without a link.
type accounts struct {
	api  API // nil if the node has no API server
	meta Meta
	down func() bool

	mu     sync.Mutex
	cached map[types.NamespacedName]account
	uids   map[string]types.UID // by namespace/name
	tokens map[tokenKey]token
}

type account struct {
	*metav1.ObjectMeta
	at time.Time
}

type tokenKey struct {
	pod      types.UID
	account  types.UID
	audience string
}

type token struct {
	text    string
	expires time.Time
}

func (a *accounts) loadUIDs(ctx context.Context) error {
	a.cached, a.uids, a.tokens = map[types.NamespacedName]account{}, map[string]types.UID{}, map[tokenKey]token{}
	text, found, err := a.meta.Meta(ctx, accountsKey)
	if err != nil || !found {
		return err
	}
	if json.Unmarshal([]byte(text), &a.uids) != nil || a.uids == nil {
		a.uids = map[string]types.UID{}
	}
	return nil
}

// getAccount returns the metadata of a service account, from the cache or from the API server.
func (a *accounts) getAccount(ctx context.Context, namespace, name string) (*metav1.ObjectMeta, error) {
	if a.api == nil {
		return nil, errors.New("the node stands alone")
	}
	key := types.NamespacedName{Namespace: namespace, Name: name}
	a.mu.Lock()
	k, ok := a.cached[key]
	a.mu.Unlock()
	if ok && time.Since(k.at) < accountTTL {
		return k.ObjectMeta, nil
	}
	got, err := a.api.ServiceAccount(ctx, namespace, name)
	if err != nil {
		return nil, fmt.Errorf("service account %s: %w", key, err)
	}
	a.mu.Lock()
	maps.DeleteFunc(a.cached, func(_ types.NamespacedName, k account) bool { return time.Since(k.at) >= accountTTL })
	a.cached[key] = account{got, time.Now()}
	a.mu.Unlock()
	return got, a.saveUID(ctx, key.String(), got.UID)
}

// saveUID stores the UID of an account if it has changed.
func (a *accounts) saveUID(ctx context.Context, name string, uid types.UID) error {
	a.mu.Lock()
	if a.uids[name] == uid {
		a.mu.Unlock()
		return nil
	}
	if len(a.uids) >= maxEntries {
		delete(a.uids, slices.Sorted(maps.Keys(a.uids))[0])
	}
	a.uids[name] = uid
	text, err := json.Marshal(a.uids)
	a.mu.Unlock()
	if err != nil {
		return err
	}
	return a.meta.SetMetaOrRetry(ctx, accountsKey, string(text))
}

// accountReference identifies the service account of a pod. While the API server is unreachable, it uses the last known UID
// of an account with that name. This is safe because the pod was bound to the node while there was a link.
func (a *accounts) accountReference(ctx context.Context, pod *v1.Pod) (v1.ObjectReference, error) {
	namespace, name := pod.Namespace, pod.Spec.ServiceAccountName
	ref := v1.ObjectReference{Kind: keyring.ServiceAccount, Namespace: namespace, Name: name}
	a.mu.Lock()
	last, known := a.uids[types.NamespacedName{Namespace: namespace, Name: name}.String()]
	a.mu.Unlock()
	if known && a.down() {
		ref.UID = last
		return ref, nil
	}
	soon, stop := context.WithTimeout(ctx, accountTimeout)
	defer stop()
	got, err := a.getAccount(soon, namespace, name)
	switch {
	case err == nil:
		ref.UID = got.UID
	case known && soon.Err() != nil && ctx.Err() == nil:
		ref.UID, err = last, nil
	}
	return ref, err
}

// identityFor returns the identity with which a plugin is called for a pod, or errNotApplicable. Its cache key contains
// all parts of the request on which the response may depend, as in a kubelet.
func (a *accounts) identityFor(ctx context.Context, pod *v1.Pod, t *configv1.ServiceAccountTokenAttributes) (*identity, error) {
	if t == nil {
		return &identity{}, nil
	}
	name := pod.Spec.ServiceAccountName
	if name == "" {
		if *t.RequireServiceAccount {
			return nil, errNotApplicable
		}
		return &identity{}, nil
	}
	got, err := a.getAccount(ctx, pod.Namespace, name)
	if err != nil {
		return nil, err
	}
	annotations, err := annotationsFor(t, got.Annotations)
	if err != nil {
		return nil, err
	}
	who := &identity{
		from:        v1.ObjectReference{Kind: keyring.ServiceAccount, Namespace: pod.Namespace, Name: name, UID: got.UID},
		annotations: annotations,
		token: func(ctx context.Context) (string, error) {
			return a.getToken(ctx, pod, got.UID, t.ServiceAccountTokenAudience)
		},
	}
	parts := []any{pod.Namespace, name, got.UID, annotations}
	if t.CacheType == configv1.TokenServiceAccountTokenCacheType {
		text, err := who.token(ctx)
		if err != nil {
			return nil, err
		}
		parts = append(parts, sha256.Sum256([]byte(text)))
	}
	key, err := json.Marshal(parts)
	who.key = string(key)
	return who, err
}

func annotationsFor(t *configv1.ServiceAccountTokenAttributes, all map[string]string) (map[string]string, error) {
	out := map[string]string{}
	for _, k := range t.RequiredServiceAccountAnnotationKeys {
		v, ok := all[k]
		if !ok {
			return nil, errNotApplicable // workloads enable the plugin with the annotation
		}
		out[k] = v
	}
	for _, k := range t.OptionalServiceAccountAnnotationKeys {
		if v, ok := all[k]; ok {
			out[k] = v
		}
	}
	return out, nil
}

// getToken returns a token of the service account for a pod. It requests a new one if the cached one expires within
// tokenMargin.
func (a *accounts) getToken(ctx context.Context, pod *v1.Pod, account types.UID, audience string) (string, error) {
	k := tokenKey{pod.UID, account, audience}
	a.mu.Lock()
	cached, ok := a.tokens[k]
	a.mu.Unlock()
	if ok && time.Until(cached.expires) > tokenMargin {
		return cached.text, nil
	}
	text, expires, err := a.api.AccountToken(ctx, pod, account, audience)
	if err != nil {
		return "", fmt.Errorf("token of service account %s/%s for audience %q: %w", pod.Namespace, pod.Spec.ServiceAccountName,
			audience, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.tokens, func(_ tokenKey, t token) bool { return time.Until(t.expires) <= tokenMargin })
	for k := range a.tokens {
		if len(a.tokens) < maxEntries {
			break
		}
		delete(a.tokens, k)
	}
	a.tokens[k] = token{text, expires}
	return text, nil
}
