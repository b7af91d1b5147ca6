package link

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/internal/retry"
)

const (
	firstAttempt = 2 * time.Second
	mostAttempt  = time.Minute // once the server has answered
	// afterDenial is how long a node whose request was denied waits before it makes
	// another one, for another key.
	afterDenial = 10 * time.Minute
)

// noCredentials is why there is no client.
type noCredentials struct{ reason, message string }

// Error is for a person.
func (e *noCredentials) Error() string { return e.reason + ": " + e.message }

// Is tells that a request without credentials did not leave the node.
func (e *noCredentials) Is(target error) bool { return target == kube.ErrNoLink }

// identity is who the node is to the API server: what the kubeconfig says, with the
// newest certificate.
//
//	no usable kubeconfig, or its certificate expired --bootstrap--> pair, kubeconfig
//	70 to 90 % of the certificate's life have passed --rotate-----> pair
type identity struct {
	link    *Link
	log     *slog.Logger
	pairs   pairs
	files   chan struct{} // capacity 1: they may have changed
	changed chan struct{} // capacity 1: what rest gives has changed

	failed string // what run last logged

	failures atomic.Uint64

	mu      sync.Mutex
	config  *rest.Config      // nil: see missing
	leaf    *x509.Certificate // nil: the credentials are no certificate
	missing *noCredentials
	// rejected is a certificate that is over by what anybody knows of the time and that the
	// server did not accept: the clock alone takes nobody's credentials away.
	rejected *x509.Certificate
}

func newIdentity(l *Link) *identity {
	return &identity{
		link: l, log: l.cfg.Log, pairs: pairs{dir: l.cfg.CertDir, prefix: "kubelet-client"},
		files: make(chan struct{}, 1), changed: make(chan struct{}, 1),
		missing: &noCredentials{ReasonNoCredentials, "this node stands alone"},
	}
}

func (i *identity) filesChanged() { poke(i.files) }

// rest is what the client uses now; always the same pointer for the same credentials.
func (i *identity) rest() (*rest.Config, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.config == nil {
		return nil, i.missing
	}
	return i.config, nil
}

func (i *identity) expiry() time.Time {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.leaf == nil {
		return time.Time{}
	}
	return i.leaf.NotAfter
}

// refused says why a server may not have accepted the credentials.
func (i *identity) refused() (reason, message string) {
	until := i.expiry()
	if over := !until.IsZero() && i.link.clock.later().After(until); over {
		i.mu.Lock()
		i.rejected = i.leaf
		i.mu.Unlock()
		i.filesChanged() // to take or get another
		return ReasonCertificateExpired, fmt.Sprintf("the client certificate expired at %s; give a bootstrap kubeconfig (--bootstrap-kubeconfig) or another kubeconfig", until.Format(time.RFC3339))
	}
	return ReasonUnauthorized, "the server refuses the credentials of " + i.link.cfg.Kubeconfig
}

// load reads the files and tells whether their credentials can be used.
func (i *identity) load() bool {
	config, leaf, err := i.read()
	if err != nil {
		i.lose(&noCredentials{ReasonNoCredentials, err.Error()})
		return false
	}
	if leaf != nil {
		i.link.clock.suggest(leaf.NotBefore)
	}
	i.mu.Lock()
	over := leaf != nil && i.rejected != nil && leaf.Equal(i.rejected)
	i.mu.Unlock()
	if over && i.link.cfg.BootstrapKubeconfig != "" {
		message := "the client certificate expired at " + leaf.NotAfter.Format(time.RFC3339)
		if _, err := readRest(i.link.cfg.BootstrapKubeconfig); err != nil {
			message += fmt.Sprintf(", and there is nothing to get another with: %v", err)
		}
		i.lose(&noCredentials{ReasonCertificateExpired, message})
		return false
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.config == nil || !reflect.DeepEqual(config, i.config) {
		i.config, i.leaf, i.missing = config, leaf, nil
		poke(i.changed)
	}
	return true
}

// lose is lack, unless it is known already and something is done about it.
func (i *identity) lose(why *noCredentials) {
	i.mu.Lock()
	known := i.missing != nil && i.missing.reason == ReasonBootstrapping
	i.mu.Unlock()
	if !known {
		i.lack(why)
	}
}

// lack takes the credentials away, with the reason.
func (i *identity) lack(why *noCredentials) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.config != nil || i.missing == nil || *i.missing != *why {
		i.config, i.leaf, i.missing = nil, nil, why
		poke(i.changed)
	}
}

// read gives what kubeconfig and pair say. A bootstrap that was cut off after its pair
// was saved is completed.
func (i *identity) read() (*rest.Config, *x509.Certificate, error) {
	cfg := i.link.cfg
	if cfg.Kubeconfig == "" {
		return nil, nil, errors.New("there is no --kubeconfig to write credentials to")
	}
	newest, pairErr := i.pairs.load()
	kubeconfig, user, err := readKubeconfig(cfg.Kubeconfig)
	if errors.Is(err, fs.ErrNotExist) && newest != nil && cfg.BootstrapKubeconfig != "" && newest.cert.Leaf.Subject.CommonName == commonName(cfg.NodeName) {
		if err = writeKubeconfig(cfg.Kubeconfig, cfg.BootstrapKubeconfig, i.pairs.current()); err == nil {
			kubeconfig, user, err = readKubeconfig(cfg.Kubeconfig)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	if newest != nil && i.better(newest, user) {
		user.ClientCertificate, user.ClientKey = "", ""
		user.ClientCertificateData, user.ClientKeyData = newest.pem, newest.pem
	} else if user.ClientCertificate == i.pairs.current() {
		return nil, nil, fmt.Errorf("the client certificate of %s: %w", cfg.Kubeconfig, pairErr)
	}
	config, err := restConfig(kubeconfig)
	if err != nil {
		return nil, nil, fmt.Errorf("kubeconfig %s: %w", cfg.Kubeconfig, err)
	}
	leaf, err := leafOf(config)
	if err != nil {
		return nil, nil, fmt.Errorf("the client certificate of %s: %w", cfg.Kubeconfig, err)
	}
	return config, leaf, nil
}

// better tells whether the newest pair counts, and not what the kubeconfig says. A pair
// that was rotated is issued later, and ends later, than the certificate that a kubeconfig
// began with. One that was issued after the pair was put there by somebody, such as for
// another CA, which does not accept the pair; it counts until it is over.
func (i *identity) better(newest *pair, user *api.AuthInfo) bool {
	if user.ClientCertificate == i.pairs.current() {
		return true
	}
	if !i.link.cfg.Rotate || (user.ClientCertificate == "" && len(user.ClientCertificateData) == 0) {
		return false
	}
	leaf, err := leafOfUser(user)
	if err != nil {
		return true
	}
	i.mu.Lock()
	given := leaf.NotBefore.After(newest.cert.Leaf.NotBefore) && (i.rejected == nil || !leaf.Equal(i.rejected))
	i.mu.Unlock()
	return newest.cert.Leaf.Subject.CommonName == leaf.Subject.CommonName && newest.cert.Leaf.NotAfter.After(leaf.NotAfter) && !given
}

// run gets and renews the certificate until ctx ends.
func (i *identity) run(ctx context.Context) error {
	again := retry.Backoff{First: firstAttempt, Most: mostAttempt}
	for ctx.Err() == nil {
		select {
		case <-i.files: // which are read now
		default:
		}
		usable := i.load()
		switch {
		case !usable && i.link.cfg.BootstrapKubeconfig != "":
			i.attempt(ctx, "bootstrap", i.bootstrap, &again)
		case usable && i.due():
			if s, moved := i.link.states.get(); s.Phase != Up {
				sleep(ctx, look, i.files, moved)
				continue
			}
			i.attempt(ctx, "rotate the client certificate", i.rotate, &again)
		default:
			again.Reset()
			sleep(ctx, i.untilNext(), i.files)
		}
	}
	return nil
}

// attempt does what is needed, and after a failure waits.
func (i *identity) attempt(ctx context.Context, what string, do func(context.Context) error, again *retry.Backoff) {
	err := do(ctx)
	if err == nil || ctx.Err() != nil {
		again.Reset()
		i.failed = ""
		return
	}
	i.failures.Add(1)
	if err.Error() != i.failed {
		i.failed = err.Error()
		i.log.Warn("no client certificate yet", "doing", what, "error", err)
	}
	wait := again.Next(kube.RetryAfter(err))
	if errors.Is(err, errDenied) {
		wait = retry.Around(afterDenial)
	}
	i.link.clock.sleep(ctx, wait, i.files, i.link.cfg.NetworkChanged)
}

// look is how long the next decision is put off at most: timers of months would not
// see that the clock was set.
const look = time.Hour

// due tells whether it is time for another certificate.
func (i *identity) due() bool {
	i.mu.Lock()
	leaf := i.leaf
	i.mu.Unlock()
	return i.link.cfg.Rotate && leaf != nil && !i.link.clock.Now().Before(rotateAt(leaf))
}

// untilNext is how long nothing is to do.
func (i *identity) untilNext() time.Duration {
	i.mu.Lock()
	leaf := i.leaf
	i.mu.Unlock()
	if leaf == nil {
		return look
	}
	next := leaf.NotAfter.Add(time.Second)
	if at := rotateAt(leaf); i.link.cfg.Rotate {
		next = at
	}
	if left := next.Sub(i.link.clock.Now()); left > 0 {
		return min(left, look)
	}
	return look // over, and nothing to be done about it
}

// rotateAt is 70 to 90 % into a certificate's life. Where exactly follows from its serial
// number: it is the same after a restart, and another for every node.
func rotateAt(leaf *x509.Certificate) time.Time {
	var seed [2]uint64
	for n, b := range leaf.SerialNumber.Bytes() {
		seed[n%2] = seed[n%2]<<8 ^ seed[n%2]>>56 ^ uint64(b)
	}
	at := 0.7 + 0.2*rand.New(rand.NewPCG(seed[0], seed[1])).Float64()
	return leaf.NotBefore.Add(time.Duration(at * float64(leaf.NotAfter.Sub(leaf.NotBefore))))
}
