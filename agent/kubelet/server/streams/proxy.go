package streams

import (
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"

	"github.com/islet-edge/islet/agent/kubelet/server/response"
)

// proxyStream calls the function ask, which requests a URL from a runtime in another process. It then forwards the
// client's request to this URL.
func (s *Streams) proxyStream(w http.ResponseWriter, r *http.Request, ask func() (string, error)) {
	target, err := ask()
	if err != nil {
		response.WriteError(w, err)
		return
	}
	u, err := url.Parse(target)
	if err != nil || u.Host == "" {
		response.WriteError(w, fmt.Errorf("the runtime returned the invalid stream URL %q", target))
		return
	}
	w, r, cancel := prepareHijack(w, r, 0, nil)
	defer cancel(nil)
	(&httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.Out.URL, p.Out.Host = u, u.Host }}).ServeHTTP(w, r)
}
