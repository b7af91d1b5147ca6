package access

import "crypto/tls"

// TLS makes the configuration of a listener from one with a certificate, the
// oldest version and so on. Clients are asked for a certificate, but one that
// does not hold is answered 401 and not an aborted handshake.
func (g *Guard) TLS(base *tls.Config) *tls.Config {
	c := base.Clone()
	if g.ClientCAFile == "" {
		return c
	}
	c.ClientAuth = tls.RequestClientCert
	// A client may choose its certificate by the authorities that are offered.
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		offer := c.Clone()
		offer.GetConfigForClient = nil
		offer.ClientCAs = g.authorities.current()
		return offer, nil
	}
	return c
}
