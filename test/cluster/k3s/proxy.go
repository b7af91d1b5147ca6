package k3s

import (
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
)

// proxy returns the handler of the API server's paths. In k3s the API server is in the same process and sees the client's certificate. Here
// it trusts the user that this proxy names. Tokens go to the API server as they are.
// k3s pkg/server/handlers/handlers.go, APIServer.
func (s *Server) proxy() http.Handler {
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "https", Host: s.c.API})
			for name := range r.Out.Header {
				if strings.HasPrefix(name, "X-Remote-") {
					r.Out.Header.Del(name)
				}
			}
			if u := userOf(r.In); u.name != "" {
				r.Out.Header.Set("X-Remote-User", u.name)
				r.Out.Header["X-Remote-Group"] = u.groups
			}
		},
		Transport: &http.Transport{
			DialContext:         s.c.Dial,
			TLSClientConfig:     &tls.Config{RootCAs: s.pki.server.pool(), Certificates: []tls.Certificate{s.pki.authProxy}},
			MaxIdleConnsPerHost: 100,
		},
		FlushInterval: -1, // needed for watches
		ErrorLog:      log.New(io.Discard, "", 0),
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, _ error) {
			refuse(w, r, http.StatusServiceUnavailable, errors.New("apiserver not ready"))
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u, ok, err := s.certified(r)
		switch {
		case ok:
			r = r.WithContext(withUser(r.Context(), u))
		case err != nil && r.Header.Get("Authorization") == "":
			refuse(w, r, http.StatusUnauthorized, errors.New("Unauthorized"))
			return
		}
		forward.ServeHTTP(w, r)
	})
}
