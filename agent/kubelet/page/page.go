package page

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/islet-edge/islet/internal/connlimit"
)

//go:embed assets
var assets embed.FS

// Config configures a Page.
type Config struct {
	Port    int                 // TCP port on 127.0.0.1; 0 disables the page
	API     func() http.Handler // returns the handler of the agent's local socket
	Machine Machine
	History string // path of the file that keeps the readings while the agent restarts; if empty, there is no such file
	Log     *slog.Logger
}

// A Page is the status page. It works below any path that ends in a slash.
type Page struct {
	c       Config
	history history
}

// New returns a Page. It returns nil if c.Port is 0.
func New(c Config) *Page {
	if c.Port == 0 {
		return nil
	}
	return &Page{c: c, history: history{file: historyFile{path: c.History, log: c.Log}}}
}

// maxConnections is the maximum number of connections to the port on localhost.
const maxConnections = 32

// HandlerAt returns a handler that serves the page below the path root, such as /page/. The caller authenticates the requests.
// HandlerAt returns nil if p is nil.
func (p *Page) HandlerAt(root string) http.Handler {
	if p == nil {
		return nil
	}
	return http.StripPrefix(strings.TrimSuffix(root, "/"), http.HandlerFunc(p.serve))
}

// Run serves the page on localhost and records the history until ctx ends. If the port is in use, Run logs an error, and
// the page is available only at port 10250.
func (p *Page) Run(ctx context.Context) error {
	at := net.JoinHostPort("127.0.0.1", strconv.Itoa(p.c.Port))
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", at)
	if err != nil {
		p.c.Log.Error("cannot serve the status page on localhost", "address", at, "error", err)
		return p.history.run(ctx, p.c.Machine)
	}
	hs := &http.Server{Handler: p.localOnly(), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(p.c.Log.Handler(), slog.LevelDebug),
		BaseContext: func(net.Listener) context.Context { return ctx }}
	connlimit.Watch(hs)
	ended := make(chan error, 1)
	go func() {
		ended <- hs.Serve(connlimit.Listen(ln, connlimit.Config{PortName: "the status page", MaxConnections: maxConnections, Log: p.c.Log}))
	}()
	p.history.run(ctx, p.c.Machine)
	hs.Close()
	if err := <-ended; err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("status page: %w", err)
	}
	return nil
}

// contentPolicy is the Content-Security-Policy. It allows the page to load only its own files, and forbids frames.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; " +
	"form-action 'none'; frame-ancestors 'none'"

var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
	".js": "text/javascript; charset=utf-8",
}

func (p *Page) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", contentPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		http.Error(w, "this page is read-only", http.StatusMethodNotAllowed)
		return
	}
	name := strings.TrimPrefix(r.URL.Path, "/")
	switch name {
	case "", "network":
		p.respond(w, r, func(v *view) (err error) {
			if v.d, err = p.collectDocument(r.Context(), choice{warnings: v.warnings}); err != nil {
				return err
			}
			if name == "" {
				v.overview()
			} else {
				v.network()
			}
			return nil
		})
		return
	case "pod":
		if validNames(w, r, "namespace", "pod") {
			p.respond(w, r, func(v *view) error { return p.podPage(r.Context(), v) })
		}
		return
	case "data":
		p.serveData(w, r)
		return
	case "log":
		p.serveLog(w, r)
		return
	}
	b, err := assets.ReadFile(path.Join("assets", path.Base(name)))
	if err != nil || strings.Contains(name, "/") {
		http.NotFound(w, r)
		return
	}
	h.Set("Content-Type", contentTypes[path.Ext(name)])
	w.Write(b)
}

func (p *Page) serveData(w http.ResponseWriter, r *http.Request) {
	d, err := p.collectDocument(r.Context(), choice{})
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(d) // an error means that the client has disconnected
}

// The page shows only the end of a log. These are its maximum size in lines and in bytes.
const (
	logLines = 200
	logBytes = 64 << 10
)

func (p *Page) serveLog(w http.ResponseWriter, r *http.Request) {
	if !validNames(w, r, "namespace", "pod", "container") {
		return
	}
	q := r.URL.Query()
	text, err := p.readLog(r.Context(), q.Get("namespace"), q.Get("pod"), q.Get("container"), q.Get(paramPrevious) == "true")
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Write(bytes.ToValidUTF8(text, []byte("\uFFFD")))
}

// validNames reports whether the request has all of these parameters, and whether each value can be an element of a path. If not,
// validNames responds with an error.
func validNames(w http.ResponseWriter, r *http.Request, names ...string) bool {
	for _, name := range names {
		if v := r.URL.Query().Get(name); v == "" || strings.ContainsAny(v, "/?#%\\") || v == "." || v == ".." {
			http.Error(w, name+" is missing or not a valid name", http.StatusBadRequest)
			return false
		}
	}
	return true
}

// readLog returns the end of a container's log. If previous is true, it returns the end of the log from before the
// container's last restart.
func (p *Page) readLog(ctx context.Context, namespace, pod, container string, previous bool) ([]byte, error) {
	path := fmt.Sprintf("/containerLogs/%s/%s/%s?tailLines=%d", url.PathEscape(namespace), url.PathEscape(pod), url.PathEscape(container),
		logLines)
	if previous {
		path += "&previous=true"
	}
	text, err := p.callAPI(ctx, path)
	if err != nil {
		return nil, err
	}
	if cut := len(text) - logBytes; cut > 0 {
		text = text[cut:]
		if i := bytes.IndexByte(text, '\n'); i >= 0 && i < len(text)-1 { // a single long line is shown without its beginning
			text = text[i+1:]
		}
	}
	return text, nil
}

// maxAnswer is the maximum size of a response of the API.
const maxAnswer = 16 << 20

// callAPI requests a path of the agent's API within this process, and returns the body of the response.
func (p *Page) callAPI(ctx context.Context, path string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://islet"+path, nil)
	if err != nil {
		return nil, err
	}
	a := responseRecorder{header: http.Header{}, code: http.StatusOK}
	if a.callHandler(p.c.API(), r) {
		return nil, fmt.Errorf("%s: the response was aborted", path)
	}
	switch {
	case a.code != http.StatusOK:
		return nil, errors.New(strings.TrimSpace(string(a.body[:min(len(a.body), 1024)])))
	case a.cut:
		return nil, fmt.Errorf("the response of %s exceeds %d bytes", path, maxAnswer)
	}
	return a.body, nil
}

// A responseRecorder is an http.ResponseWriter that records a response.
type responseRecorder struct {
	header http.Header
	code   int
	body   []byte
	cut    bool
}

// callHandler calls the handler. It reports whether the handler aborted the response.
func (a *responseRecorder) callHandler(h http.Handler, r *http.Request) (broken bool) {
	defer func() {
		if e := recover(); e == http.ErrAbortHandler {
			broken = true
		} else if e != nil {
			panic(e)
		}
	}()
	h.ServeHTTP(a, r)
	return false
}

// Header implements http.ResponseWriter.
func (a *responseRecorder) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *responseRecorder) WriteHeader(code int) { a.code = code }

// Flush implements http.Flusher.
func (a *responseRecorder) Flush() {}

// SetReadDeadline does nothing, because there is no connection.
func (a *responseRecorder) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline does nothing.
func (a *responseRecorder) SetWriteDeadline(time.Time) error { return nil }

// Write implements http.ResponseWriter.
func (a *responseRecorder) Write(b []byte) (int, error) {
	if len(a.body)+len(b) > maxAnswer {
		a.cut = true
		return 0, errors.New("too much")
	}
	a.body = append(a.body, b...)
	return len(b), nil
}
