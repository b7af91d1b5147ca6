package server

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// zpageHead is the beginning of a page for administrators, in the format of k8s.io/apiserver. The format may change,
// so programs should not parse it (KEP-4827, KEP-4828).
const zpageHead = "\nkubelet %s\nWarning: This endpoint is not meant to be machine parseable, has no formatting " +
	"compatibility guarantees and is for debugging purposes only.\n"

// routeZPages adds /statusz and /flagz, the pages about this process and its flags.
func (s *Server) routeZPages(m mux) {
	m.HandleFunc("GET /statusz", func(w http.ResponseWriter, r *http.Request) {
		if setPlainText(w, r) {
			s.statusz(w, slices.Sorted(maps.Keys(m.roots)))
		}
	})
	m.HandleFunc("GET /flagz", func(w http.ResponseWriter, r *http.Request) {
		if setPlainText(w, r) {
			s.flagz(w)
		}
	})
}

// statusz writes the versions and the paths. A kubelet does not have the last line.
func (s *Server) statusz(w io.Writer, roots []string) {
	up := int64(time.Since(s.started).Seconds())
	version := strings.TrimPrefix(s.KubeVersion, "v")
	minor := version
	if parts := strings.SplitN(version, ".", 3); len(parts) == 3 {
		minor = parts[0] + "." + parts[1]
	}
	roots = slices.DeleteFunc(roots, func(root string) bool { return root == "/statusz" })
	fmt.Fprintf(w, zpageHead, "statusz")
	fmt.Fprintf(w, "\nStarted: %s\nUp: %d hr %02d min %02d sec\nGo version: %s\nBinary version: %s\nEmulation "+
		"version: %s\nPaths: %s\nislet version: %s\n",
		s.started.Format(time.UnixDate), up/3600, up/60%60, up%60, runtime.Version(), version, minor, strings.Join(roots, " "), s.Version)
}

// flagz writes all flags with their values.
func (s *Server) flagz(w io.Writer) {
	fmt.Fprintf(w, zpageHead, "flagz")
	for _, flag := range s.Kubelet.Flags {
		fmt.Fprintln(w, flag)
	}
}

// setPlainText sets the content type to plain text. If the client does not accept it, setPlainText responds with an error and returns
// false.
func setPlainText(w http.ResponseWriter, r *http.Request) bool {
	accept := r.Header.Get("Accept")
	for part := range strings.SplitSeq(accept, ",") {
		kind, _, _ := strings.Cut(strings.TrimSpace(part), ";")
		if accept == "" || kind == "*/*" || kind == "text/*" || kind == "text/plain" {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			return true
		}
	}
	http.Error(w, "only text/plain is available", http.StatusNotAcceptable)
	return false
}

// longestLevel is the maximum length of a log level in the body of a request.
const longestLevel = 16

// setLevel sets the log level to the number in the body of a PUT request. The scale is klog's, as in every
// Kubernetes component.
func (s *Server) setLevel(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPut {
		http.Error(w, "unsupported http method", http.StatusNotAcceptable)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, longestLevel))
	if err != nil {
		http.Error(w, "error reading the body: "+err.Error(), http.StatusBadRequest)
		return
	}
	level, err := strconv.ParseInt(strings.TrimSpace(string(body)), 10, 8)
	if err != nil || level < 0 {
		http.Error(w, fmt.Sprintf("failed set klog.logging.verbosity %q: it is a number from 0 to 127", body), http.StatusBadRequest)
		return
	}
	s.Kubelet.SetLevel(int(level))
	s.Log.Info("log level changed", "v", level)
	w.Header().Set("Content-Type", "text/plain")
	fmt.Fprintf(w, "successfully set klog.logging.verbosity to %d", level)
}
