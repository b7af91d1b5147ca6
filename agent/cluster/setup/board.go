package setup

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/inputweight"
	"github.com/islet-edge/islet/internal/untrusted"
)

// These identify a Board document.
const (
	APIVersion = "islet.dev/v1alpha1"
	Kind       = "BoardSetup"
)

const (
	maxFile   = 64 << 10  // bytes of islet.yaml
	maxBeside = 256 << 10 // bytes of a configuration
	maxValue  = 1024      // bytes of a URL
	maxPEM    = 1 << 20   // memory of the decoded certificates
)

// A Board is the content of islet.yaml.
type Board struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`

	// Name is the name of the node. It may contain {serial} and {mac}, which differ from board to board. Without a name, the node has the
	// name of the certificate, or the machine's host name.
	Name string `json:"name,omitempty"`
	// Cluster is the control plane. Without it, the node stands alone.
	Cluster *Cluster `json:"cluster,omitempty"`
	// Network has the settings of the pods' network, as in a KubeletConfiguration.
	Network Network `json:"network,omitzero"`
	// Bundle and Update have the same fields as in an EdgeConfiguration.
	Bundle *config.Bundles `json:"bundle,omitempty"`
	Update *config.Updates `json:"update,omitempty"`
	// KubeletConfiguration and EdgeConfiguration are the names of files next to islet.yaml, with other settings.
	KubeletConfiguration string `json:"kubeletConfiguration,omitempty"`
	EdgeConfiguration    string `json:"edgeConfiguration,omitempty"`
	// LED is the name of the LED in /sys/class/leds that gets the trigger heartbeat if islet.yaml cannot be used, or if the board cannot
	// join.
	LED string `json:"led,omitempty"`
}

// A Cluster says how the board joins.
type Cluster struct {
	// Server is the https URL of the API server.
	Server string `json:"server"`
	// CA is the certificate of the cluster's CA in PEM. CAHash is the SHA-256 of its public key instead, as kubeadm prints it.
	CA     string `json:"ca,omitempty"`
	CAHash string `json:"caHash,omitempty"`
	// Token is a bootstrap token.
	Token string `json:"token,omitempty"`
	// Certificate and Key are the client certificate of this node in PEM, instead of a token.
	Certificate string `json:"certificate,omitempty"`
	Key         string `json:"key,omitempty"`
}

// Network has settings of the pods' network.
type Network struct {
	PodCIDR       string   `json:"podCIDR,omitempty"`
	ClusterDNS    []string `json:"clusterDNS,omitempty"`
	ClusterDomain string   `json:"clusterDomain,omitempty"`
}

// A source is an islet.yaml that was read.
type source struct {
	path  string
	data  []byte
	board Board
	// certName is the name of the node in Cluster.Certificate.
	certName string
	// tokenRemoved is set if the token was overwritten after an earlier use.
	tokenRemoved bool
	secrets      []secret
}

// parse decodes islet.yaml and checks everything in it that does not depend on this machine. All mistakes are joined.
func parse(path string, data []byte) (*source, error) {
	s := &source{path: path, data: data}
	if err := config.Decode(path, data, APIVersion, Kind, &s.board); err != nil {
		return nil, err
	}
	c := &checker{s: s}
	b := &s.board
	c.checkName()
	for _, f := range []struct{ field, value string }{
		{"kubeletConfiguration", b.KubeletConfiguration}, {"edgeConfiguration", b.EdgeConfiguration}, {"led", b.LED},
	} {
		if f.value != "" && !isBesideName(f.value) {
			c.add(f.field, "want a name without a path")
		}
	}
	if b.Cluster != nil {
		c.checkCluster(b.Cluster)
	}
	return s, errors.Join(c.errs...)
}

// A checker collects the mistakes of an islet.yaml.
type checker struct {
	s    *source
	errs []error
}

// add adds a mistake. It is not inlined, because it is called in many places.
//
//go:noinline
func (c *checker) add(field, format string, args ...any) {
	c.errs = append(c.errs, config.NewFileError(c.s.path, c.s.data, field, format, args...))
}

func (c *checker) checkCluster(k *Cluster) {
	u, err := url.Parse(k.Server)
	if err != nil || len(k.Server) > maxValue || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" ||
		u.Fragment != "" || strings.Trim(u.Path, "/") != "" {
		c.add("cluster.server", "want an https URL of a host, such as https://192.0.2.1:6443")
	}
	if err := inputweight.PEM(maxPEM, k.CA, k.Certificate, k.Key); err != nil {
		c.add("cluster", "%v", err)
		return
	}
	c.checkAuthority(k)
	switch {
	case k.Token != "" && (k.Certificate != "" || k.Key != ""), k.Token == "" && (k.Certificate == "" || k.Key == ""):
		c.add("cluster", "want either token, or certificate and key")
	case k.Token != "":
		c.checkToken(k.Token)
	case k.CAHash != "":
		c.add("cluster.caHash", "a node with a certificate needs ca")
	default:
		c.checkCertificate(k)
	}
}

func (c *checker) checkAuthority(k *Cluster) {
	switch {
	case (k.CA == "") == (k.CAHash == ""):
		c.add("cluster", "want either ca or caHash")
	case k.CA != "":
		if _, err := authorities([]byte(k.CA)); err != nil {
			c.add("cluster.ca", "%v", err)
		}
	default:
		if _, err := parseHash(k.CAHash); err != nil {
			c.add("cluster.caHash", "%v", err)
		}
	}
}

func (c *checker) checkToken(token string) {
	if strings.Trim(token, filler) == "" {
		c.s.tokenRemoved = true
		return
	}
	if !isToken(token) {
		c.add("cluster.token", "want a bootstrap token of 6 and 16 small letters and digits, with a dot between them")
		return
	}
	c.addSecrets("cluster.token", token)
}

func (c *checker) checkCertificate(k *Cluster) {
	if strings.Contains(k.Key, filler) {
		c.s.tokenRemoved = true
		return
	}
	pair, err := tls.X509KeyPair([]byte(k.Certificate), []byte(k.Key))
	if err != nil {
		c.add("cluster.certificate", "with cluster.key: %v", err)
		return
	}
	name, ok := strings.CutPrefix(pair.Leaf.Subject.CommonName, nodeUser)
	if !ok || len(validation.IsDNS1123Subdomain(name)) > 0 {
		c.add("cluster.certificate", "its common name is not %sNAME", nodeUser)
		return
	}
	c.s.certName = name
	if b := &c.s.board; b.Name != "" && !strings.Contains(b.Name, "{") && b.Name != name {
		c.add("name", "the certificate is for %q", name)
	}
	var lines []string
	short := 0
	for line := range strings.Lines(k.Key) {
		switch line = strings.TrimSpace(line); {
		case line == "" || strings.HasPrefix(line, "-----"):
		case len(line) < shortestSecret:
			short++
		default:
			lines = append(lines, line)
		}
	}
	if len(lines) < short {
		c.add("cluster.key", "its lines have less than %d characters, and could not be removed", shortestSecret)
	}
	c.addSecrets("cluster.key", lines...)
}

// shortestSecret is the minimum length of a line of a key that is overwritten. A shorter text may be elsewhere in the file by chance.
const shortestSecret = 16

// nodeUser is the beginning of the user names of nodes.
const nodeUser = "system:node:"

// addSecrets records where texts are in the file.
func (c *checker) addSecrets(field string, texts ...string) {
	for _, text := range texts {
		found := findSecrets(c.s.data, text)
		if len(found) == 0 {
			c.add(field, "write it without quotes inside or line breaks, so that it can be removed")
			return
		}
		c.s.secrets = append(c.s.secrets, found...)
	}
}

// isToken reports whether text is a bootstrap token.
// https://kubernetes.io/docs/reference/access-authn-authz/bootstrap-tokens/
func isToken(text string) bool {
	id, key, _ := strings.Cut(text, ".")
	return len(id) == 6 && len(key) == 16 && strings.Trim(id+key, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

// parseHash returns the bytes of a hash as kubeadm prints it.
func parseHash(text string) ([]byte, error) {
	digits, ok := strings.CutPrefix(text, "sha256:")
	sum, err := hex.DecodeString(digits)
	if !ok || err != nil || len(sum) != sha256.Size {
		return nil, errors.New("want sha256: and 64 hexadecimal digits")
	}
	return sum, nil
}

// maxAuthorities is the maximum number of certificates of CAs.
const maxAuthorities = 20

// authorities returns the certificates of CAs in PEM.
func authorities(text []byte) (list []*x509.Certificate, err error) {
	for {
		block, rest := pem.Decode(text)
		if block == nil {
			break
		}
		text = rest
		cert, err := x509.ParseCertificate(block.Bytes)
		switch {
		case block.Type != "CERTIFICATE":
			return nil, fmt.Errorf("want certificates in PEM, have a %.40q", block.Type)
		case err != nil:
			return nil, err
		case !cert.IsCA:
			return nil, fmt.Errorf("the certificate of %.100q is not a CA certificate", cert.Subject.CommonName)
		case len(list) == maxAuthorities:
			return nil, fmt.Errorf("want at most %d certificates", maxAuthorities)
		}
		list = append(list, cert)
	}
	if len(list) == 0 {
		return nil, errors.New("want a certificate in PEM")
	}
	return list, nil
}

// readFile reads a file of the boot partition.
func readFile(path string, limit int64) ([]byte, error) {
	return untrusted.ReadFile(filepath.Dir(path), filepath.Base(path), limit)
}
