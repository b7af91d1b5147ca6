package page

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// localOnly returns the handler for the port on localhost. It rejects requests for other host names, because an attacker
// may cause such requests by DNS rebinding. It also rejects requests that pages of other sites cause.
func (p *Page) localOnly() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !localName(r.Host) {
			http.Error(w, "use the host name localhost", http.StatusMisdirectedRequest)
			return
		}
		if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" && r.URL.Path != "/" {
			http.Error(w, "request from another site", http.StatusForbidden)
			return
		}
		if o := r.Header.Get("Origin"); o != "" && o != "http://"+r.Host {
			http.Error(w, "request from another site", http.StatusForbidden)
			return
		}
		p.serve(w, r)
	})
}

func localName(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	if strings.EqualFold(name, "localhost") {
		return true
	}
	a, err := netip.ParseAddr(strings.Trim(name, "[]"))
	return err == nil && a.IsLoopback()
}
