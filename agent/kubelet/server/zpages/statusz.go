package zpages

import (
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"time"
)

// zpageHead is the beginning of a page for administrators, in the format of k8s.io/apiserver. The format may change,
// so programs should not parse it (KEP-4827, KEP-4828).
const zpageHead = "\nkubelet %s\nWarning: This endpoint is not meant to be machine parseable, has no formatting " +
	"compatibility guarantees and is for debugging purposes only.\n"

// Statusz serves /statusz, the page about this process. The function roots returns the first elements of all paths.
func (p *Pages) Statusz(roots func() []string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if setPlainText(w, r) {
			p.statusz(w, roots())
		}
	}
}

// Flagz serves /flagz, the page about the flags.
func (p *Pages) Flagz(w http.ResponseWriter, r *http.Request) {
	if setPlainText(w, r) {
		p.flagz(w)
	}
}

// statusz writes the versions and the paths. A kubelet does not have the last line.
func (p *Pages) statusz(w io.Writer, roots []string) {
	up := int64(time.Since(p.Started).Seconds())
	version := strings.TrimPrefix(p.KubeVersion, "v")
	minor := version
	if parts := strings.SplitN(version, ".", 3); len(parts) == 3 {
		minor = parts[0] + "." + parts[1]
	}
	roots = slices.DeleteFunc(roots, func(root string) bool { return root == "/statusz" })
	fmt.Fprintf(w, zpageHead, "statusz")
	fmt.Fprintf(w, "\nStarted: %s\nUp: %d hr %02d min %02d sec\nGo version: %s\nBinary version: %s\nEmulation "+
		"version: %s\nPaths: %s\nislet version: %s\n",
		p.Started.Format(time.UnixDate), up/3600, up/60%60, up%60, runtime.Version(), version, minor, strings.Join(roots, " "), p.Version)
}

// flagz writes all flags with their values.
func (p *Pages) flagz(w io.Writer) {
	fmt.Fprintf(w, zpageHead, "flagz")
	for _, flag := range p.Flags {
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
