package credentials

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/distribution/reference"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	configv1 "k8s.io/kubelet/config/v1"

	"github.com/islet-edge/islet/internal/keyring"
	"github.com/islet-edge/islet/internal/readonly"
)

// Secrets returns the credentials from a pod's imagePullSecrets, and the names of missing
// Secrets.
type Secrets interface {
	PullSecrets(ctx context.Context, pod *v1.Pod, image string) (has []keyring.Credential, missing []string)
}

// An API fetches service accounts and their tokens. *object.Cache implements it.
type API interface {
	ServiceAccount(ctx context.Context, namespace, name string) (*metav1.ObjectMeta, error)
	AccountToken(ctx context.Context, pod *v1.Pod, account types.UID, audience string) (token string, expires time.Time, err error)
}

// Meta stores small values across restarts. *store.Store implements it.
type Meta interface {
	Meta(ctx context.Context, key string) (value string, found bool, err error)
	SetMetaOrRetry(ctx context.Context, key, value string) error
}

// Config is the input of Open.
type Config struct {
	Plugins string // --image-credential-provider-config, a file or directory; empty if there are no plugins
	BinDir  string // --image-credential-provider-bin-dir
	Root    string // the kubelet's root directory, which may contain a docker configuration
	Secrets Secrets
	API     API // nil if the node has no API server
	Meta    Meta
	Down    func() bool // reports whether the link is known to be down; may be nil
	Log     *slog.Logger
}

// Credentials returns the registry credentials of pods. Its methods may be called from any
// goroutine.
type Credentials struct {
	secrets   Secrets
	node      node
	providers []*provider // in the order of the configuration
	accounts  *accounts
	counts    *pluginMetrics // nil if there are no plugins
	log       *slog.Logger
	stop      context.CancelFunc
}

// Open reads the configuration of plugins. Like a kubelet, it fails if the configuration is
// invalid or a program is missing. It runs no program.
func Open(cfg Config) (*Credentials, error) {
	c := &Credentials{secrets: cfg.Secrets, node: node{root: cfg.Root, log: cfg.Log}, log: cfg.Log, stop: func() {}}
	if cfg.Plugins == "" {
		return c, nil
	}
	all, hash, err := loadConfig(cfg.Plugins)
	if readonly.IsDiskFault(err) { // not fatal, because pods whose images are present need no plugins
		cfg.Log.Error("cannot read the configuration of credential provider plugins: none is used until the agent restarts",
			"file", cfg.Plugins, "error", err)
		return c, nil
	}
	if err != nil {
		return nil, fmt.Errorf("--image-credential-provider-config: %w", err)
	}
	if cfg.Down == nil {
		cfg.Down = func() bool { return false }
	}
	c.accounts = &accounts{api: cfg.API, meta: cfg.Meta, down: cfg.Down}
	ctx, stop := context.WithCancel(context.Background()) // Close cancels it to kill running programs
	c.stop = stop
	if err := c.accounts.loadUIDs(ctx); err != nil {
		c.stop()
		return nil, err
	}
	c.counts = newPluginMetrics(hash)
	for i := range all {
		p := newPlugin(cfg.BinDir, &all[i])
		if _, err := os.Stat(p.path); err != nil && !readonly.IsDiskFault(err) { // checkProgram logs an error
			c.stop()
			return nil, fmt.Errorf("--image-credential-provider-bin-dir: the program of provider %q: %w", all[i].Name, err)
		}
		if err := checkProgram(p.path); err != nil {
			cfg.Log.Error("a credential provider plugin cannot be used", "plugin", all[i].Name, "error", err)
		}
		c.providers = append(c.providers, newProvider(ctx, &all[i], p, c.counts))
	}
	return c, nil
}

func newProvider(ctx context.Context, p *configv1.CredentialProvider, program plugin, counts *pluginMetrics) *provider {
	return &provider{
		name: p.Name, images: p.MatchImages, duration: p.DefaultCacheDuration.Duration, token: p.TokenAttributes,
		callProgram: program.callProgram, ctx: ctx, slots: make(chan struct{}, maxCalls), counts: counts,
		pending: map[cacheKey]*pendingCall{}, cache: map[cacheKey]*cacheEntry{},
	}
}

// Close kills the running programs and waits for their end.
func (c *Credentials) Close() error {
	c.stop()
	for _, p := range c.providers {
		for range cap(p.slots) { // when all slots are taken, all calls have ended
			p.slots <- struct{}{}
		}
	}
	return nil
}

// Keyring returns the credentials of a pod for an image: from its pull secrets, then from the
// node's configuration. Its Ask calls the plugins that match the image.
func (c *Credentials) Keyring(ctx context.Context, pod *v1.Pod, image string) (k keyring.Credentials) {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return k
	}
	image = named.Name() // without tag and digest
	if c.secrets != nil {
		k.Stored, k.MissingSecrets = c.secrets.PullSecrets(ctx, pod, image)
	}
	k.Stored = append(k.Stored, c.node.lookup(image)...)
	var asked []*provider
	for _, p := range c.providers {
		if !p.appliesTo(image) {
			continue
		}
		asked = append(asked, p)
		if p.token != nil && pod.Spec.ServiceAccountName != "" && k.Account == nil {
			k.Scope = pod.Namespace + "/" + pod.Spec.ServiceAccountName
			k.Account = func(ctx context.Context) (v1.ObjectReference, error) { return c.accounts.accountReference(ctx, pod) }
		}
	}
	if len(asked) > 0 {
		k.RunPlugins = func(ctx context.Context) ([]keyring.Credential, error) { return c.askPlugins(ctx, asked, pod, image) }
	}
	return k
}

// askPlugins calls plugins in parallel. Credentials for the same registry are in the order of the
// plugins in the configuration.
func (c *Credentials) askPlugins(ctx context.Context, all []*provider, pod *v1.Pod, image string) ([]keyring.Credential, error) {
	rings, errs := make([]keyring.Ring, len(all)), make([]error, len(all))
	var calls sync.WaitGroup
	for i, p := range all {
		calls.Go(func() {
			who, err := c.accounts.identityFor(ctx, pod, p.token)
			if errors.Is(err, errNotApplicable) {
				return
			}
			if err == nil {
				err = p.obtainCredentials(ctx, image, who, &rings[i])
			}
			if err != nil {
				errs[i] = fmt.Errorf("credential provider %s: %w", filepath.Base(p.name), err)
			}
		})
	}
	calls.Wait()
	var ring keyring.Ring
	for _, r := range rings {
		ring = append(ring, r...)
	}
	return ring.Lookup(image), errors.Join(errs...)
}
