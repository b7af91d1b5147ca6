// Package cis contains the worker section of the CIS Kubernetes Benchmark as a table of checks.
// Each check inspects an installed node: its files, the configuration in force, or its behaviour.
//
// The numbers of the recommendations and the required values are from version 1.12 of the benchmark
// (https://www.cisecurity.org/benchmark/kubernetes), which is for Kubernetes 1.34 and newer.
package cis

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A Node contains the properties of the node that the checks inspect.
type Node struct {
	Root       string // the root of the node's file system, as a path of this process
	Units      []string
	Kubeconfig string // empty if the node is in no cluster
	ConfigFile string // empty if there is no such file
	Args       []string
	Kubelet    Kubelet
	// Request sends a request without credentials to a path of the kubelet API. Request is nil if the API
	// has no port.
	Request func(path string) (status int, err error)
	// Ciphers are the cipher suites of TLS 1.2 that the kubelet API accepts, with their names in Go.
	Ciphers []string
	// PodPids is the process limit of a pod that sets no limit of its own. 0 means no limit.
	PodPids int64
}

// Kubelet contains the fields of the active KubeletConfiguration that the checks need.
type Kubelet struct {
	Authentication struct {
		X509      struct{ ClientCAFile string }
		Anonymous struct{ Enabled *bool }
	}
	Authorization                          struct{ Mode string }
	Port, ReadOnlyPort                     int32
	StreamingConnectionIdleTimeout         string
	MakeIPTablesUtilChains                 *bool
	EventRecordQPS                         *int32
	TLSCertFile, TLSPrivateKeyFile         string
	RotateCertificates, ServerTLSBootstrap bool
	FeatureGates                           map[string]bool
	SeccompDefault                         *bool
}

// A Check is a recommendation of the benchmark. The function Check returns an error if a node does
// not comply with the recommendation.
type Check struct {
	ID, Text string
	Check    func(*Node) error
}

// proxy is the path of the kubeconfig that kube-proxy would use outside a pod.
const proxy = "/var/lib/kube-proxy/kubeconfig"

// strongCiphers contains the cipher suites that the benchmark recommends.
var strongCiphers = []string{
	"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
	"TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
}

// Table returns the checks of the section. The benchmark marks some recommendations as manual. For these recommendations, the checks
// inspect the configuration. If the configuration is not sufficient, they inspect the node's behaviour.
func Table() []Check {
	return []Check{
		{"4.1.1", "the service's files have mode 600 or less", func(n *Node) error { return n.checkModes(0o600, n.Units...) }},
		{"4.1.2", "the service's files are root's", func(n *Node) error { return n.checkOwner(n.Units...) }},
		{"4.1.3", "the proxy's kubeconfig has mode 600 or less", func(n *Node) error {
			return n.checkModes(0o600, n.existingFiles(proxy)...)
		}},
		{"4.1.4", "the proxy's kubeconfig is root's", func(n *Node) error { return n.checkOwner(n.existingFiles(proxy)...) }},
		{"4.1.5", "the kubeconfig has mode 600 or less", func(n *Node) error { return n.checkModes(0o600, n.Kubeconfig) }},
		{"4.1.6", "the kubeconfig is root's", func(n *Node) error { return n.checkOwner(n.Kubeconfig) }},
		{"4.1.7", "the file of authorities has mode 644 or less",
			func(n *Node) error { return n.checkModes(0o644, n.Kubelet.Authentication.X509.ClientCAFile) }},
		{"4.1.8", "the file of authorities is root's",
			func(n *Node) error { return n.checkOwner(n.Kubelet.Authentication.X509.ClientCAFile) }},
		{"4.1.9", "the configuration has mode 600 or less", func(n *Node) error { return n.checkModes(0o600, n.ConfigFile) }},
		{"4.1.10", "the configuration is root's", func(n *Node) error { return n.checkOwner(n.ConfigFile) }},
		{"4.2.1", "requests without credentials are rejected", (*Node).checkAnonymous},
		{"4.2.2", "requests are authorized by a webhook", func(n *Node) error {
			return requireEqual("authorization.mode", n.Kubelet.Authorization.Mode,
				"Webhook")
		}},
		{"4.2.3", "certificates of clients are checked", (*Node).checkClientCA},
		{"4.2.4", "there is no port without authentication",
			func(n *Node) error { return requireEqual("readOnlyPort", n.Kubelet.ReadOnlyPort, 0) }},
		{"4.2.5", "idle streams end", func(n *Node) error {
			if d, err := time.ParseDuration(n.Kubelet.StreamingConnectionIdleTimeout); err != nil || d <= 0 || d > 4*time.Hour {
				return fmt.Errorf("streamingConnectionIdleTimeout is %v, %w", d, err)
			}
			return nil
		}},
		{"4.2.6", "makeIPTablesUtilChains is on", func(n *Node) error {
			return requireEqual("makeIPTablesUtilChains", *n.Kubelet.MakeIPTablesUtilChains, true)
		}},
		{"4.2.7", "the host's name is not overridden", func(n *Node) error {
			if slices.ContainsFunc(n.Args, func(a string) bool { return strings.HasPrefix(a, "--hostname-override") }) {
				return fmt.Errorf("the flags are %q", n.Args)
			}
			return nil
		}},
		{"4.2.8", "events are recorded", func(n *Node) error {
			if q := *n.Kubelet.EventRecordQPS; q < 0 {
				return fmt.Errorf("eventRecordQPS is %d", q)
			}
			return nil
		}},
		{"4.2.9", "the kubelet API is served only by TLS", (*Node).checkServing},
		{"4.2.10", "the client's certificate is renewed", func(n *Node) error {
			if n.Kubeconfig == "" {
				return nil // the node has no client certificate
			}
			return requireEqual("rotateCertificates", n.Kubelet.RotateCertificates, true)
		}},
		{"4.2.11", "RotateKubeletServerCertificate is not off", func(n *Node) error {
			if on, set := n.Kubelet.FeatureGates["RotateKubeletServerCertificate"]; set && !on {
				return errors.New("the feature gate is off")
			}
			return nil
		}},
		{"4.2.12", "cipher suites are strong ones", func(n *Node) error {
			if n.Request != nil && len(n.Ciphers) == 0 {
				return errors.New("the kubelet API accepts no cipher suite")
			}
			for _, c := range n.Ciphers {
				if !slices.Contains(strongCiphers, c) {
					return fmt.Errorf("the kubelet API accepts %s", c)
				}
			}
			return nil
		}},
		{"4.2.13", "pods have a limit of processes", func(n *Node) error {
			if n.PodPids <= 0 {
				return errors.New("a pod has no limit")
			}
			return nil
		}},
		{"4.2.14", "seccompDefault is on", func(n *Node) error { return requireEqual("seccompDefault", *n.Kubelet.SeccompDefault, true) }},
		{"4.3.1", "the host runs no kube-proxy", func(n *Node) error {
			if len(n.existingFiles(proxy)) > 0 {
				return errors.New("kube-proxy has a kubeconfig")
			}
			return nil
		}},
	}
}

func requireEqual[T comparable](what string, have, requireEqual T) error {
	if have != requireEqual {
		return fmt.Errorf("%s is %v, not %v", what, have, requireEqual)
	}
	return nil
}

// existingFiles returns the given files that exist.
func (n *Node) existingFiles(files ...string) (out []string) {
	for _, f := range files {
		if _, err := os.Lstat(filepath.Join(n.Root, f)); err == nil {
			out = append(out, f)
		}
	}
	return out
}

// checkFiles passes each file to the function look. It returns an error if a file does not exist. It skips empty names. An empty name
// means that this node does not need the file.
func (n *Node) checkFiles(look func(fs.FileInfo) error, files []string) error {
	var errs []error
	for _, f := range files {
		if f == "" {
			continue
		}
		info, err := os.Stat(filepath.Join(n.Root, f))
		if err == nil {
			err = look(info)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", f, err))
		}
	}
	return errors.Join(errs...)
}

func (n *Node) checkModes(most fs.FileMode, checkModes ...string) error {
	return n.checkFiles(func(i fs.FileInfo) error {
		if i.Mode().Perm()&^most != 0 {
			return fmt.Errorf("mode %o, not %o", i.Mode().Perm(), most)
		}
		return nil
	}, checkModes)
}

func (n *Node) checkOwner(files ...string) error {
	return n.checkFiles(func(i fs.FileInfo) error {
		if s := i.Sys().(*syscall.Stat_t); s.Uid != 0 || s.Gid != 0 {
			return fmt.Errorf("owner %d:%d", s.Uid, s.Gid)
		}
		return nil
	}, files)
}

func (n *Node) checkAnonymous() error {
	if *n.Kubelet.Authentication.Anonymous.Enabled {
		return errors.New("authentication.anonymous.enabled")
	}
	if n.Request == nil {
		return nil
	}
	for _, path := range []string{"/pods", "/metrics", "/configz", "/exec/default/p/c?command=id", "/runningpods/", "/logs/"} {
		if status, err := n.Request(path); err != nil || status != 401 {
			return fmt.Errorf("the status of %s is %d, %w", path, status, err)
		}
	}
	return nil
}

// checkClientCA checks that a certificate authority for client certificates is configured. A node without a cluster has no such authority,
// and must reject all requests.
func (n *Node) checkClientCA() error {
	if n.Kubeconfig == "" {
		return n.checkAnonymous()
	}
	if n.Kubelet.Authentication.X509.ClientCAFile == "" {
		return errors.New("clientCAFile is not set")
	}
	return nil
}

// checkServing checks the settings of the serving certificate. If no certificate is configured, the
// node creates a certificate, or requests one from the cluster.
func (n *Node) checkServing() error {
	if (n.Kubelet.TLSCertFile == "") != (n.Kubelet.TLSPrivateKeyFile == "") {
		return errors.New("one of tlsCertFile and tlsPrivateKeyFile is set")
	}
	return n.checkModes(0o600, n.Kubelet.TLSPrivateKeyFile)
}
