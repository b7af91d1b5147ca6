package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	cliflag "k8s.io/component-base/cli/flag"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/islet-edge/islet/agent/access"
	"github.com/islet-edge/islet/agent/server"
	"github.com/islet-edge/islet/edge/review"
)

// A port is a TCP port of a kubelet's, and who answers there.
type port struct {
	address     string
	number      int32
	what, field string // for messages
	run         func(*server.Server, context.Context, net.Listener) error
	ln          net.Listener
}

// openPorts listens where the configuration says. Nothing but the listeners is
// there until somebody asks.
func (a *agent) openPorts(ctx context.Context) error {
	ports, err := a.kubeletPorts()
	if err != nil {
		return err
	}
	for _, p := range ports {
		if p.ln, err = server.Listen(ctx, p.address, p.number, p.what, p.field, a.log); err != nil {
			return err
		}
		a.closers = append(a.closers, func() error { p.ln.Close(); return nil }) // most often closed by who served
		a.ports = append(a.ports, p)
	}
	return nil
}

func (a *agent) kubeletPorts() (ports []port, err error) {
	k := &a.cfg.Kubelet
	if n := *k.HealthzPort; n > 0 {
		ports = append(ports, port{address: k.HealthzBindAddress, number: n, what: "healthz", field: "healthzPort", run: (*server.Server).RunHealthz})
	}
	if n := k.ReadOnlyPort; n > 0 {
		ports = append(ports, port{address: k.Address, number: n, what: "the read-only kubelet API", field: "readOnlyPort", run: (*server.Server).RunReadOnly})
	}
	if !*k.EnableServer || k.Port == 0 {
		return ports, nil
	}
	guard := a.guard()
	if why := guard.Nobody(); why != "" {
		a.log.Info("the kubelet API is on the local socket only: nobody could use its port", "port", k.Port, "because", why)
		return ports, nil
	}
	config, err := a.tlsConfig()
	if err != nil {
		return nil, err
	}
	config = guard.TLS(config)
	return append(ports, port{address: k.Address, number: k.Port, what: "the kubelet API", field: "port",
		run: func(s *server.Server, ctx context.Context, ln net.Listener) error {
			return s.RunAPI(ctx, ln, config, guard.Wrap)
		}}), nil
}

// guard decides who may use port 10250. Tokens and permissions need a control
// plane to ask.
func (a *agent) guard() *access.Guard {
	authn, authz := &a.cfg.Kubelet.Authentication, &a.cfg.Kubelet.Authorization
	c := access.Config{
		NodeName: a.cfg.Node.Name, ClientCAFile: authn.X509.ClientCAFile, Anonymous: *authn.Anonymous.Enabled,
		AlwaysAllow: authz.Mode == kubelet.KubeletAuthorizationModeAlwaysAllow, Now: a.link.Now, Log: a.log,
	}
	if a.cluster != nil {
		client := a.link.Client()
		if *authn.Webhook.Enabled {
			c.Tokens = review.NewTokens(client, authn.Webhook.CacheTTL.Duration)
		}
		c.Authorizer = review.NewAccess(client, authz.Webhook.CacheAuthorizedTTL.Duration, authz.Webhook.CacheUnauthorizedTTL.Duration)
	}
	return access.New(c)
}

// tlsConfig is that of port 10250, by the configuration.
func (a *agent) tlsConfig() (*tls.Config, error) {
	k := &a.cfg.Kubelet
	oldest, verr := cliflag.TLSVersion(k.TLSMinVersion)
	suites, serr := cliflag.TLSCipherSuites(k.TLSCipherSuites)
	curves, cerr := cliflag.TLSCurvePreferences(k.TLSCurvePreferences)
	if err := errors.Join(verr, serr, cerr); err != nil {
		return nil, fmt.Errorf("TLS of the kubelet API: %w", err)
	}
	if len(suites) == 0 {
		suites = nil // Go's choice
	}
	return &tls.Config{MinVersion: oldest, CipherSuites: suites, CurvePreferences: curves,
		GetCertificate: a.link.ServingCertificate, NextProtos: []string{"h2", "http/1.1"}}, nil
}

// hostLogs is what /logs/ shows.
const hostLogs = "/var/log"

// kubeletPaths says what is open on the kubelet's ports.
func (a *agent) kubeletPaths() server.Kubelet {
	k := &a.cfg.Kubelet
	p := server.Kubelet{Debugging: *k.EnableDebuggingHandlers, Profiling: *k.EnableProfilingHandler, Config: k}
	if *k.EnableSystemLogHandler {
		p.SystemLogs = hostLogs
	}
	return p
}

// stuck is how long the agent may be at one thing that it does in no time.
const stuck = 2 * time.Minute

// checks are what healthz looks at: whether wanted pods are taken up and what
// runs is looked at.
func (a *agent) checks() []server.Check {
	return []server.Check{{Name: "syncloop", Check: func(context.Context) error {
		if d := a.workers.Overdue(); d > stuck {
			return fmt.Errorf("a pod has been waiting for its worker for %s", d.Round(time.Second))
		}
		if d := a.observer.Busy(); d > stuck {
			return fmt.Errorf("the container runtime has not answered for %s", d.Round(time.Second))
		}
		return nil
	}}}
}
