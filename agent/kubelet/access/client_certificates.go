package access

import "crypto/tls"

// TLS returns the configuration of a listener, which is based on base. It requests a client certificate but does not
// verify it in the handshake. A client with an invalid certificate therefore gets the response 401.
func (g *Filter) TLS(base *tls.Config) *tls.Config {
	c := base.Clone()
	if g.ClientCAFile == "" {
		return c
	}
	c.ClientAuth = tls.RequestClientCert
	// The CAs are sent to the client, which may use them to choose its certificate.
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		offer := c.Clone()
		offer.GetConfigForClient = nil
		offer.ClientCAs = g.clientCAs.currentPool()
		return offer, nil
	}
	return c
}
