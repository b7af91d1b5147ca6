package access

import "crypto/tls"

// TLS derives a listener's configuration from base. A client certificate is requested but not
// required, so an invalid one is answered with 401 instead of a failed handshake.
func (g *Filter) TLS(base *tls.Config) *tls.Config {
	c := base.Clone()
	if g.ClientCAFile == "" {
		return c
	}
	c.ClientAuth = tls.RequestClientCert
	// A client may choose its certificate by the advertised CAs.
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		offer := c.Clone()
		offer.GetConfigForClient = nil
		offer.ClientCAs = g.authorities.current()
		return offer, nil
	}
	return c
}
