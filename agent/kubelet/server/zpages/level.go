package zpages

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// longestLevel is the maximum length of a log level in the body of a request.
const longestLevel = 16

// SetLevel sets the log level to the number in the body of a PUT request. The scale is klog's, as in every
// Kubernetes component.
func (p *Pages) SetLevel(w http.ResponseWriter, r *http.Request) {
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
	p.SetLogLevel(int(level))
	p.Log.Info("log level changed", "v", level)
	w.Header().Set("Content-Type", "text/plain")
	fmt.Fprintf(w, "successfully set klog.logging.verbosity to %d", level)
}
