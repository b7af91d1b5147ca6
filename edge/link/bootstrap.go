package link

import (
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/internal/retry"
)

// bootstrap obtains a client certificate with the credentials of the bootstrap kubeconfig. It is called for the node's first certificate,
// and after the certificate has expired. See https://kubernetes.io/docs/reference/access-authn-authz/kubelet-tls-bootstrapping/.
func (i *identity) bootstrap(ctx context.Context) error {
	cfg := i.link.cfg
	from, _, err := readKubeconfig(cfg.BootstrapKubeconfig)
	if err != nil {
		return err // load has put it into the state
	}
	with, err := restConfig(from.DeepCopy())
	if err != nil {
		return fmt.Errorf("kubeconfig %s: %w", cfg.BootstrapKubeconfig, err)
	}
	i.setMissing(&noCredentials{ReasonBootstrapping, "requesting a client certificate from " + with.Host})
	c, err := i.newClient(with)
	if err != nil {
		return err
	}
	defer c.CloseConnections()
	a, err := c.Ready(ctx) // detects connection problems
	if err != nil && i.link.clock.evaluateCertError(err, with) {
		a, err = c.Ready(ctx)
	}
	if err != nil {
		i.setMissing(&noCredentials{ReasonBootstrapping, troubleOf(err).message})
		return err
	}
	if !a.Date.IsZero() && !a.CertificateEnd.IsZero() {
		i.link.clock.evaluateDate(a.Date, a.CertificateEnd, true)
	}
	made, err := i.obtainClientCert(ctx, c, credentialsOf(with), nil)
	if err != nil {
		if ctx.Err() == nil {
			i.setMissing(&noCredentials{ReasonBootstrapping, err.Error()})
		}
		return err
	}
	if _, _, err := readKubeconfig(cfg.Kubeconfig); isUnreadable(err) {
		i.warnUnread(err) // only a warning, because read also works without this file
	} else if err != nil {
		// The certificate belongs to the cluster of the kubeconfig that was read before the request.
		if err := writeKubeconfig(cfg.Kubeconfig, from, i.pairs.currentPath()); err != nil {
			return fmt.Errorf("write kubeconfig: %w", err)
		}
	}
	i.log.Info("the node has a client certificate")
	i.bootstrappedBy = with
	i.bootstraps.Succeeded(min(longestInterval(made.cert.Leaf), afterDenial))
	return nil
}

// credentialsOf returns the credentials of a configuration of restConfig, to compare them.
func credentialsOf(c *rest.Config) []byte {
	return fmt.Appendf(nil, "%q|%q|%q|%q|%q", c.BearerToken, c.Username, c.Password, c.CertData, c.Impersonate.UserName)
}

// untilBootstrap returns the minimum time until the next bootstrap. It returns 0 if the bootstrap kubeconfig has changed, because the
// certificate may then be one that the node can use.
func (i *identity) untilBootstrap() time.Duration {
	left := i.bootstraps.Left()
	if left > 0 {
		with, err := readRest(i.link.cfg.BootstrapKubeconfig)
		if err == nil && !areEqual(with, i.bootstrappedBy) {
			i.bootstraps, left = retry.Pace{}, 0
		}
	}
	return left
}

// areEqual compares two configurations of restConfig. It compares the addresses of their proxies, because functions are never equal.
func areEqual(a, b *rest.Config) bool {
	if a == nil || b == nil {
		return a == b
	}
	x, y := *a, *b
	x.Proxy, y.Proxy = nil, nil
	return proxyOf(a) == proxyOf(b) && reflect.DeepEqual(x, y)
}

// proxyOf returns the proxy-url of a kubeconfig, or "" if it has none.
func proxyOf(c *rest.Config) string {
	if c.Proxy == nil {
		return ""
	}
	proxy, err := c.Proxy(&http.Request{})
	if err != nil || proxy == nil {
		return ""
	}
	return proxy.String()
}

// newClient returns a client with its own connections, for requests with credentials that are not in use.
func (i *identity) newClient(with *rest.Config) (*kube.Client, error) {
	cfg := i.link.cfg
	return kube.New(kube.Config{
		Rest: func() (*rest.Config, error) { return with, nil }, Dial: cfg.Dial, Now: i.link.clock.Now,
		QPS: cfg.QPS, Burst: cfg.Burst, JSON: cfg.JSON, AnswerBudget: i.link.answers,
	})
}

func (i *identity) obtainClientCert(ctx context.Context, c *kube.Client, requester []byte, prove func(*pair) error) (*pair, error) {
	waiting := func(name string) {
		i.mu.Lock()
		without := i.config == nil
		i.mu.Unlock()
		if without {
			i.setMissing(&noCredentials{ReasonBootstrapping, "certificate signing request " + name + " waits for approval"})
		}
	}
	return obtainPair(ctx, i.pairs, clientRequest(i.link.cfg.NodeName, requester), c, i.link.clock, waiting, prove)
}

// obtainPair requests a certificate and saves it with its key. If the function prove is not nil and returns an error, the current pair
// stays in use. After an error that is not errDenied or errRejected, the next call continues with the same request.
func obtainPair(ctx context.Context, p pairFiles, r signingRequest, c *kube.Client, clock *clock, waiting func(name string),
	prove func(*pair) error) (*pair, error) {
	key, keyPEM, err := p.pendingKey()
	if err != nil {
		return nil, fmt.Errorf("create a key: %w", err)
	}
	cert, err := r.obtainCertificate(ctx, c, key, waiting)
	if err == nil && prove != nil {
		var made *pair
		if made, err = makePair(cert, keyPEM); err == nil {
			err = prove(made)
		}
	}
	if errors.Is(err, errDenied) || errors.Is(err, errRejected) {
		_ = os.Remove(p.pendingPath()) // the next request must use another key
	}
	if err != nil {
		return nil, err
	}
	made, err := p.save(cert, keyPEM, clock.Now())
	if err != nil {
		return nil, fmt.Errorf("save the certificate: %w", err)
	}
	if _, ok := made.cert.PrivateKey.(crypto.Signer); !ok {
		return nil, errors.New("the certificate's key cannot sign")
	}
	clock.recordHint(made.cert.Leaf.NotBefore)
	return made, nil
}

// leafOf returns the client certificate of a configuration without its chain, or nil if the configuration has no certificate.
func leafOf(cfg *rest.Config) (*x509.Certificate, error) {
	if len(cfg.CertData) == 0 {
		return nil, nil
	}
	cert, err := tls.X509KeyPair(cfg.CertData, cfg.KeyData)
	if err != nil {
		return nil, err
	}
	return cert.Leaf, nil
}

// leafOfUser returns the client certificate of a kubeconfig user without its chain.
func leafOfUser(user *api.AuthInfo) (*x509.Certificate, error) {
	cert, key := user.ClientCertificateData, user.ClientKeyData
	var err error
	if len(cert) == 0 {
		if cert, err = os.ReadFile(user.ClientCertificate); err != nil {
			return nil, err
		}
	}
	if len(key) == 0 {
		if key, err = os.ReadFile(user.ClientKey); err != nil {
			return nil, err
		}
	}
	made, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	return made.Leaf, nil
}
