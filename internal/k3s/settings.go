package k3s

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/islet-edge/islet/internal/printable"
)

// MaxServers is the maximum number of servers of a cluster.
const MaxServers = 8

// Settings are the settings of a cluster that a node needs.
type Settings struct {
	ClusterDNS    []netip.Addr
	ClusterDomain string
	// APIServer is the URL of the API server on the machine of the supervisor.
	APIServer string
	// EgressMode is egress-selector-mode of the server. With "disabled", the server needs no tunnel.
	EgressMode string
}

// Settings requests the settings of the cluster.
func (c *Client) Settings(ctx context.Context) (*Settings, error) {
	body, err := c.get(ctx, "config")
	if err != nil {
		return nil, err
	}
	var answer struct { // the names are from a type without tags in k3s
		ClusterDNS                netip.Addr
		ClusterDNSs               []netip.Addr
		ClusterDomain             string
		EgressSelectorMode        string
		HTTPSPort, SupervisorPort int
	}
	if err := decodeJSON("config", body, &answer); err != nil {
		return nil, fmt.Errorf("%s: %w", c.cfg.Server, err)
	}
	s := &Settings{
		ClusterDNS: answer.ClusterDNSs, ClusterDomain: answer.ClusterDomain, EgressMode: answer.EgressSelectorMode,
		APIServer: c.cfg.Server,
	}
	if len(s.ClusterDNS) == 0 && answer.ClusterDNS.IsValid() {
		s.ClusterDNS = []netip.Addr{answer.ClusterDNS}
	}
	if port := answer.HTTPSPort; port != 0 && port != answer.SupervisorPort {
		u, err := url.Parse(c.cfg.Server)
		if err != nil {
			return nil, err
		}
		u.Host = net.JoinHostPort(u.Hostname(), strconv.Itoa(port))
		s.APIServer = u.String()
	}
	if err := s.check(answer.HTTPSPort); err != nil {
		return nil, fmt.Errorf("%s%sconfig: %w", c.cfg.Server, prefix, err)
	}
	return s, nil
}

// maxDNS is the maximum number of DNS servers that the resolver of a container uses.
const maxDNS = 3

func (s *Settings) check(port int) error {
	if len(s.ClusterDNS) == 0 || len(s.ClusterDNS) > maxDNS {
		return fmt.Errorf("ClusterDNS has %d addresses, want 1 to %d", len(s.ClusterDNS), maxDNS)
	}
	for _, ip := range s.ClusterDNS {
		if !ip.IsValid() || ip.IsUnspecified() || ip.Zone() != "" {
			return fmt.Errorf("ClusterDNS: %s is not an address of a DNS server", ip)
		}
	}
	if errs := validation.IsDNS1123Subdomain(s.ClusterDomain); len(errs) > 0 {
		return fmt.Errorf("ClusterDomain: %q is not a domain", printable.Cut(s.ClusterDomain, maxMessage))
	}
	if port < 0 || port > 65535 {
		return fmt.Errorf("HTTPSPort: %d is not a port", port)
	}
	return nil
}

// APIServers requests the addresses of all servers of the cluster. It leaves out addresses that cannot belong to another machine, and all
// beyond MaxServers.
func (c *Client) APIServers(ctx context.Context) ([]netip.AddrPort, error) {
	body, err := c.get(ctx, "apiservers")
	if err != nil {
		return nil, err
	}
	var answer []string
	if err := decodeJSON("apiservers", body, &answer); err != nil {
		return nil, fmt.Errorf("%s: %w", c.cfg.Server, err)
	}
	var out []netip.AddrPort
	for _, text := range answer {
		a, err := netip.ParseAddrPort(text)
		ip := a.Addr().Unmap()
		if err != nil || a.Port() == 0 || !ip.IsGlobalUnicast() || len(out) == MaxServers {
			continue
		}
		out = append(out, netip.AddrPortFrom(ip, a.Port()))
	}
	return out, nil
}

// CAs requests the CA of clients, such as the API server at port 10250, and the CA of servers.
func (c *Client) CAs(ctx context.Context) (clients, servers []byte, err error) {
	if clients, err = c.bundle(ctx, clientCAFile); err != nil {
		return nil, nil, err
	}
	servers, err = c.bundle(ctx, serverCAFile)
	return clients, servers, err
}

// bundle requests certificates of the cluster.
func (c *Client) bundle(ctx context.Context, name string) ([]byte, error) {
	body, err := c.get(ctx, name)
	if err != nil {
		return nil, err
	}
	if _, err := parseCertificates(body); err != nil {
		return nil, fmt.Errorf("%s%s%s: %w", c.cfg.Server, prefix, name, err)
	}
	return body, nil
}

// Prove returns an error unless the API server accepts the client's certificate as the node's. The Node object need not exist.
func (c *Client) Prove(ctx context.Context, apiServer, node string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, apiServer+"/api/v1/nodes/"+url.PathEscape(node), nil)
	if err != nil {
		return err
	}
	r.Header.Set("Accept", "application/json")
	_, err = c.do(r)
	var s *StatusError
	if errors.As(err, &s) && s.Code == http.StatusNotFound {
		return nil
	}
	return err
}
