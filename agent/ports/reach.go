package ports

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"time"
)

// reachWithin bounds one look of Reach.
const reachWithin = 5 * time.Second

// Reach reports whether an API server would reach the kubelet API: something answers at an
// address of the node, in TLS that Go's own client speaks, and knows who calls with the
// node's certificate, which the authority of the API server's signed as well. A nil
// certificate asks only for an answer.
func (o *Ports) Reach(ctx context.Context, ips []netip.Addr, cert *tls.Certificate) error {
	for _, p := range o.all {
		if p.field != "port" {
			continue
		}
		host := "127.0.0.1"
		if len(ips) > 0 {
			host = ips[0].String()
		}
		return reach(ctx, net.JoinHostPort(host, strconv.Itoa(int(p.number))), cert)
	}
	return errors.New("it is not served on a port")
}

func reach(ctx context.Context, address string, cert *tls.Certificate) error {
	ctx, cancel := context.WithTimeout(ctx, reachWithin)
	defer cancel()
	c := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12} //nolint:gosec // it asks itself
	if cert != nil {
		c.Certificates = []tls.Certificate{*cert}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/healthz", nil)
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{TLSClientConfig: c, DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if cert != nil && resp.StatusCode == http.StatusUnauthorized {
		return fmt.Errorf("%s does not accept the node's own certificate: another authority signs those of clients (clientCAFile)", address)
	}
	return nil
}
