package response

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/containerd/errdefs"
)

// Limits of a request. A Stream has its own timeouts.
const (
	Timeout     = time.Minute     // of a whole request
	StopTimeout = 3 * time.Second // of a running request when the server stops
)

// A Refusal is an error with an HTTP status code.
type Refusal struct {
	Code    int
	Message string
}

func (r Refusal) Error() string { return r.Message }

// Refuse returns a Refusal. It is not inlined, because the copies at its many calls would enlarge the program.
//
//go:noinline
func Refuse(code int, format string, args ...any) error {
	return Refusal{code, fmt.Sprintf(format, args...)}
}

// WriteError responds with an error as plain text, as a kubelet does. The status code comes from a Refusal. WriteError is not inlined,
// because it is called in many places.
//
//go:noinline
func WriteError(w http.ResponseWriter, err error) { http.Error(w, err.Error(), codeOf(err)) }

func codeOf(err error) int {
	var r Refusal
	switch {
	case errors.As(err, &r):
		return r.Code
	case errdefs.IsNotFound(err):
		return http.StatusNotFound
	}
	return http.StatusInternalServerError
}

// IsNotFound reports whether WriteError responds to an error with the status 404.
func IsNotFound(err error) bool { return codeOf(err) == http.StatusNotFound }

// JSON returns a handler that responds with f's result as JSON. JSON is not generic, because each instance would add 1 KB to the program.
func JSON(f func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := f(r)
		WriteJSON(w, v, err)
	}
}

// WriteJSON responds with v as JSON, or with err unless it is nil.
func WriteJSON(w http.ResponseWriter, v any, err error) {
	if err != nil {
		WriteError(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(v) // an error means that the client has disconnected
}
